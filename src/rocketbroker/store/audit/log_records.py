"""The records of a CommitLog one by one, as a person looks at them."""

from collections.abc import Iterator, Sequence

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_encoder import body_crc
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect
from rocketbroker.common.file_window import CommitLogFile, FileWindow

#: A record with whether its body has its checksum, or the physical offset and length of a range that holds none.
LogItem = tuple[MessageExt, bool] | tuple[int, int]


def log_items(files: Sequence[CommitLogFile], start: int) -> Iterator[LogItem]:
    """What the log holds from the first record at or behind the physical offset ``start``.

    Raises:
        StoreError: a file cannot be read.
    """
    for file in files:
        if file.data_end and file.base + file.data_end > start:
            with FileWindow(file) as window:
                yield from _file_items(window, max(start - file.base, 0))


def _file_items(window: FileWindow, position: int) -> Iterator[LogItem]:
    file = window.file
    if position:
        position = find_record(window, position, file.data_end)
    while 0 <= position < file.data_end:
        if position >= window.end:
            window.load(position, 0)
        found, size = inspect(window, position)
        if found is Found.RECORD:
            message = decode_record(window.at(position, size))
            yield message, body_crc(message.body) == message.body_crc
            position += size
        elif found is Found.BROKEN:
            after = find_record(window, position + 1, file.data_end)
            yield file.base + position, (after if after >= 0 else file.data_end) - position
            position = after
        else:
            return
