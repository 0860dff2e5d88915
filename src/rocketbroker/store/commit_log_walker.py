"""Goes through the records of the CommitLog one by one (CommitLog.checkMessageAndReturnSize)."""

from collections.abc import Iterator

from rocketbroker.codec.message.message_decoder import decode_record, peek
from rocketbroker.codec.message.message_encoder import BLANK_LENGTH, BLANK_MAGIC_CODE
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.store.mapped_file import MappedFile


class FileWalk:
    """Iterates over the records of one file, from a position on.

    After the iteration ``position`` is where it stopped, ``complete`` tells whether the file was read to its end, and
    ``damage`` says what is wrong there, empty when only zeros follow.

    Args:
        file: the file.
        position: where a record begins.
        check_crc: whether bodies are held against their checksums.
    """

    def __init__(self, file: MappedFile, position: int = 0, *, check_crc: bool) -> None:
        self._file = file
        self._check_crc = check_crc
        self.position = position
        self.complete = False
        self.damage = ""

    def __iter__(self) -> Iterator[MessageExt]:
        file = self._file
        while self.position + BLANK_LENGTH <= file.file_size:
            size, magic = peek(file.buffer, self.position)
            if magic == BLANK_MAGIC_CODE:
                self._end_of_file(size)
                return
            if size == 0 and magic == 0:
                return
            message = self._decode()
            if message is None:
                return
            yield message
            self.position += size
        self.complete = True

    def _end_of_file(self, size: int) -> None:
        if self.position + size == self._file.file_size:
            self.position = self._file.file_size
            self.complete = True
        else:
            self.damage = f"a BLANK claims {size} bytes, {self._file.file_size - self.position} are left"

    def _decode(self) -> MessageExt | None:
        try:
            message = decode_record(self._file.buffer, self.position, check_crc=self._check_crc, read_body=False)
        except CorruptRecordError as error:
            self.damage = str(error)
            return None
        offset = self._file.file_from_offset + self.position
        if message.commit_log_offset != offset:
            self.damage = f"the record at {offset} says that it lies at {message.commit_log_offset}"
            return None
        return message


def first_store_timestamp(file: MappedFile) -> int | None:
    """Store time of the first record of a file in ms, or ``None`` when no valid record begins it."""
    message = next(iter(FileWalk(file, check_crc=False)), None)
    return None if message is None else message.store_timestamp
