"""Goes through the records of the CommitLog, many at a time (CommitLog.checkMessageAndReturnSize).

A bare loop over the sizes finds where records begin; numpy looks at their fields, where there are enough of them for
its import to pay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from rocketbroker.codec.message.message_decoder import decode_record, peek
from rocketbroker.codec.message.message_encoder import (
    BLANK,
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    BODY_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_POSITION,
)
from rocketbroker.codec.message.message_sys_flag import BORNHOST_V6_FLAG, HOST_V4_LENGTH, HOST_V6_LENGTH
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE, Found, find_record, inspect
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.common.file_system import SECTOR, data_ranges
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from rocketbroker.codec.byte_columns import Positions
    from rocketbroker.codec.storefile.record_columns import Records
    from rocketbroker.store.commitlog.record_hints import RecordHints

# A stretch has so many records at the most. It is read in blocks that grow from the one size to the other.
_MOST_RECORDS: Final = 65536
_FIRST_BLOCK: Final = 64 << 10
_LAST_BLOCK: Final = 4 << 20
# So many are looked at one by one.
_FEW: Final = 64
_LONG: Final = Struct(">q")
_NOTHING_WRITTEN: Final = "nothing is written there"


class CorruptRange(NamedTuple):
    """Bytes of a file that hold no sound record: ``length`` of them from ``position`` on, and what is wrong there."""

    path: Path
    position: int
    length: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}: damaged from {self.position} to {self.position + self.length}: {self.why}"


def lacks_sector(data: bytes, begin: int, end: int, position: int) -> bool:
    """Whether a sector that begins behind the body of a record never got to the disk; no checksum covers it.

    Args:
        data: bytes of a file.
        begin: where in ``data`` the body ends.
        end: where the record ends.
        position: of ``data`` in the file.
    """
    first = begin + SECTOR - (position + begin) % SECTOR
    # A record without properties ends with their length, two zeros.
    last = end if data[end - 2 : end] != b"\0\0" or first < end - 2 else first
    return any(not data[at : min(at + SECTOR, end)].strip(b"\0") for at in range(first, last, SECTOR))


class Stretch:
    """Records that follow each other in one file.

    Args:
        file: the file.
        position: where the first begins.
        data: their bytes, and perhaps some that follow.
        starts: where they begin in ``data``; at least one, the first 0.
        end: where the last of them ends in ``data``.
    """

    def __init__(self, file: MappedFile, position: int, data: bytes, starts: list[int], end: int) -> None:
        self.file = file
        self.position = position
        self.data = data
        self.starts = starts
        self.end = end

    @property
    def offset(self) -> int:
        """CommitLog offset of the first record."""
        return self.file.file_from_offset + self.position

    @property
    def end_offset(self) -> int:
        """CommitLog offset behind the last record."""
        return self.offset + self.end

    @property
    def offsets(self) -> list[int]:
        """CommitLog offsets of the records."""
        return [self.offset + start for start in self.starts]

    def first(self, count: int) -> Stretch:
        """The first so many records, one at the least."""
        if count == len(self.starts):
            return self
        return Stretch(self.file, self.position, self.data, self.starts[:count], self.starts[count])

    @cached_property
    def records(self) -> Records:
        """Their fields by column."""
        import numpy as np

        from rocketbroker.codec.storefile.record_columns import Records

        return Records(self.offset, np.frombuffer(self.data, np.uint8), np.array(self.starts, np.int64))

    def first_after(self, timestamp_ms: int, offset: int) -> int | None:
        """CommitLog offset of the first record from ``offset`` on that was stored after a time, if there is one."""
        if self.end_offset <= offset:
            return None
        if len(self.starts) <= _FEW:
            found = (self.offset + at for at in self.starts if _store_timestamp(self.data, at) > timestamp_ms)
            return next((at for at in found if at >= offset), None)
        records = self.records
        after = (records.field("store_timestamp") > timestamp_ms) & (records.starts + records.base >= offset)
        first = int(after.argmax())
        return self.offset + self.starts[first] if after[first] else None

    def sound_count(self, *, check_crc: bool) -> int:
        """How many of the first records are sound."""
        if len(self.starts) > _FEW and self.records.sound():
            return self._count_with_crc() if check_crc else len(self.starts)
        reasons = (why_unsound(self.file, self.position + start, check_crc=check_crc) for start in self.starts)
        return next((number for number, why in enumerate(reasons) if why), len(self.starts))

    def _count_with_crc(self) -> int:
        import numpy as np

        records, view = self.records, memoryview(self.data)
        begins = records.body_at.tolist()
        ends = (records.body_at + records.body_length).tolist()
        bodies = map(view.__getitem__, map(slice, begins, ends))
        found = np.fromiter(map(crc32, bodies), np.uint32, len(begins))
        wrong = (found & 0x7FFFFFFF) != records.field("body_crc")
        tails, record_ends = records.body_at + records.body_length, np.append(records.starts[1:], self.end)
        for at in self._maybe_torn(tails, record_ends).tolist():
            wrong[at] |= lacks_sector(self.data, int(tails[at]), int(record_ends[at]), self.position)
        first = int(wrong.argmax())
        return first if wrong[first] else len(self.starts)

    def _maybe_torn(self, tails: Positions, ends: Positions) -> Positions:
        """Numbers of the records in which a sector that begins behind the body begins with a zero, or several begin."""
        import numpy as np

        sectors = tails + SECTOR - (self.position + tails) % SECTOR
        inside = np.flatnonzero(sectors < ends)
        zero = self.records.data[sectors[inside]] == 0
        found: Positions = inside[zero | (sectors[inside] + SECTOR < ends[inside])]
        return found


class LogWalk:
    """Goes through the log from ``offset`` on, file by file.

    An iteration gives sound records and ends where there are no more; ``offset`` is then where it stopped, and
    ``damage`` says what is wrong there, empty when nothing is written there or the end is reached. Who wants to go on
    behind it asks ``next_sound``, sets ``offset``, and iterates again.

    Args:
        queue: the files of the log.
        offset: where a record begins.
        check_crc: whether bodies are held against their checksums.
        end: CommitLog offset at which it ends; that of the last file if not given.
        hints: where records may begin.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        offset: int,
        *,
        check_crc: bool,
        end: int | None = None,
        hints: RecordHints | None = None,
    ) -> None:
        self._queue = queue
        self._hints = hints
        self._check_crc = check_crc
        self._end = queue.max_file_end if end is None else end
        self.offset = offset
        self.damage = ""

    def __iter__(self) -> Iterator[Stretch]:
        self.damage = ""
        block = _FIRST_BLOCK
        while self.offset < self._end and (file := self._queue.find(self.offset)) is not None:
            position = self.offset - file.file_from_offset
            limit = min(file.file_size, self._end - file.file_from_offset)
            stretch = _seeming_records(file, position, limit, block, self._hints)
            block = min(2 * block, _LAST_BLOCK)
            if stretch is None:
                if not self._passes_end(file, position):
                    return
                continue
            sound = stretch.sound_count(check_crc=self._check_crc)
            if sound:
                self.offset = stretch.first(sound).end_offset
                yield stretch.first(sound)
            if sound < len(stretch.starts):
                at = position + stretch.starts[sound]
                self.damage = why_unsound(file, at, check_crc=self._check_crc)
                return

    def _passes_end(self, file: MappedFile, position: int) -> bool:
        """Go on in the next file, if what stands here closes this one; else take note of what is wrong."""
        left = file.file_size - position
        if left >= BLANK_LENGTH:
            size, magic = peek(_read(file, position, BLANK_LENGTH))
            if size == 0 and magic == 0:
                return False
            if magic == BLANK_MAGIC_CODE and size != left:
                self.damage = f"a BLANK claims {size} bytes, {left} are left"
                return False
            if magic != BLANK_MAGIC_CODE:
                self.damage = why_unsound(file, position, check_crc=False) or "a record goes beyond the end of the log"
                return False
        self.offset = file.file_from_offset + file.file_size
        return True

    @property
    def why(self) -> str:
        """What keeps it from going on."""
        return self.damage or _NOTHING_WRITTEN

    def next_sound(self) -> int | None:
        """CommitLog offset behind the place where it stopped at which it can go on, if there is one before its end.

        What is only wrong in its body is passed over as a whole, so that nothing within a body is taken for a record.
        """
        file = self._queue.find(self.offset)
        if file is None or self.offset >= self._end:
            return None
        position = self.offset - file.file_from_offset
        if (behind := _behind(file, position)) is not None:
            return file.file_from_offset + behind
        found = self._find_in(file, position + 1)
        while found is None and (file := self._queue.find(file.file_from_offset + file.file_size)) is not None:
            found = self._find_in(file, 0)
        return found

    def _find_in(self, file: MappedFile, position: int) -> int | None:
        window = _FileBytes(file)
        limit = min(file.file_size, self._end - file.file_from_offset)
        for start, stop in data_ranges(file.fd, position, limit):
            low = start
            while (at := find_record(window, low, stop)) >= 0:
                if not why_unsound(file, at, check_crc=True):
                    return file.file_from_offset + at
                low = at + 1
        return None


def sound_until(file: MappedFile, position: int, end: int) -> tuple[int, str]:
    """Up to which position of a file there are sound records, from one position on, and what is wrong there.

    Nothing is wrong when it gives ``end``, where it stops; a BLANK reaches to it.
    """
    while position < end:
        stretch = _seeming_records(file, position, end, _LAST_BLOCK)
        sound = stretch.sound_count(check_crc=True) if stretch else 0
        if stretch is not None and sound:
            position = stretch.first(sound).end_offset - file.file_from_offset
        if stretch is None or sound < len(stretch.starts):
            left = file.file_size - position
            if left < BLANK_LENGTH or peek(_read(file, position, BLANK_LENGTH)) == (left, BLANK_MAGIC_CODE):
                return end, ""
            return position, why_unsound(file, position, check_crc=True)
    return position, ""


class _FileBytes:
    """A file as the search for records sees it."""

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        self.base = mapped.file_from_offset
        self.size = self.data_end = mapped.file_size

    @property
    def file(self) -> _FileBytes:
        """Itself."""
        return self

    def at(self, position: int, length: int) -> bytes:
        """See ``LogBytes``."""
        return _read(self._mapped, position, length)


def _read(file: MappedFile, position: int, length: int) -> bytes:
    """Bytes of a file, fewer at its end. A look at a hole of the mapping could kill the process on a full tmpfs."""
    return os.pread(file.fd, max(min(length, file.file_size - position), 0), position)


def _seeming_records(
    file: MappedFile, position: int, limit: int, block: int, hints: RecordHints | None = None
) -> Stretch | None:
    """What seems to be records before ``limit`` from a position on, by their sizes and magic codes."""
    data = _read(file, position, min(block, limit - position))
    starts, end = (hints and hints.chain(file.file_from_offset + position, data)) or _chain(data)
    if not starts and len(data) >= BLANK_LENGTH:
        size, magic = peek(data)
        if len(data) < size <= limit - position and magic in {MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2}:
            data = _read(file, position, size)
            starts, end = _chain(data)
    return Stretch(file, position, data, starts, end) if starts else None


def _chain(data: bytes) -> tuple[list[int], int]:
    """Where what seems to be records begins that are whole, and where the last of them ends."""
    unpack, magic_v1, magic_v2 = BLANK.unpack_from, MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2
    length, position, least = len(data), 0, MIN_RECORD_SIZE
    starts: list[int] = []
    for _ in range(_MOST_RECORDS):
        if position + least > length:
            break
        size, magic = unpack(data, position)
        if size < least or size > length - position or (magic != magic_v1 and magic != magic_v2):  # noqa: PLR1714 - quicker
            break
        starts.append(position)
        position += size
    return starts, position


def _behind(file: MappedFile, position: int) -> int | None:
    """Where a record ends that has sound lengths, if another one, the end of the file or nothing follows it."""
    window = _FileBytes(file)
    found, size = inspect(window, position)
    if found is not Found.RECORD:
        return None
    end = position + size
    if file.file_size - end < BLANK_LENGTH or inspect(window, end)[0] is not Found.BROKEN:
        return end
    return end if peek(window.at(end, BLANK_LENGTH)) == (0, 0) else None


def why_unsound(file: MappedFile, position: int, *, check_crc: bool) -> str:
    """What is wrong with the record at a position of a file, empty when it is sound."""
    left = file.file_size - position
    size, magic = peek(_read(file, position, BLANK_LENGTH)) if left >= BLANK_LENGTH else (0, 0)
    if size > left:
        return f"totalSize is {size}, {left} bytes are left"
    data = _read(file, position, max(size, BLANK_LENGTH))
    try:
        message = decode_record(data, check_crc=check_crc, read_body=False)
    except CorruptRecordError as error:
        return str(error).removeprefix("message record at 0: ")
    offset = file.file_from_offset + position
    if message.commit_log_offset != offset:
        return f"the record at {offset} says that it lies at {message.commit_log_offset}"
    lengths = 3 if magic == MESSAGE_MAGIC_CODE_V1 else 4
    tail = size - lengths - len(message.topic.encode()) - len(message.properties_bytes)
    if check_crc and lacks_sector(data, tail, size, position):
        return "a sector of its topic or properties holds zeros alone"
    return ""


def _store_timestamp(data: bytes, at: int) -> int:
    """Store time in ms of the sound record at a position of its bytes."""
    born_v6 = data[at + SYS_FLAG_POSITION + 3] & BORNHOST_V6_FLAG
    at += STORE_TIMESTAMP_POSITION + (HOST_V6_LENGTH - HOST_V4_LENGTH if born_v6 else 0)
    (timestamp,) = _LONG.unpack_from(data, at)
    return int(timestamp)


def store_timestamp_at(queue: MappedFileQueue, offset: int) -> int | None:
    """Store time in ms of the record at a CommitLog offset, or ``None`` when no sound one begins there."""
    file = queue.find(offset)
    if file is None or why_unsound(file, offset - file.file_from_offset, check_crc=False):
        return None
    return _store_timestamp(_read(file, offset - file.file_from_offset, BODY_POSITION), 0)


def is_begun(file: MappedFile) -> bool:
    """Whether anything is written at the begin of a file."""
    return any(_read(file, 0, BLANK_LENGTH))
