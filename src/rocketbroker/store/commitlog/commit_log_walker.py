"""Search for records in the bytes of a CommitLog (CommitLog.checkMessageAndReturnSize).

``LogWalk`` goes through the files of the broker's own log. ``whole_records`` finds those in bytes of another store's
log, before they are appended unchanged (CommitLog.appendData).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    BODY_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_HEADS,
    peek,
)
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.log_walk import FileWalk, Stretch
from rocketbroker.codec.storefile.record_search import (
    Found,
    body_range,
    damage_in,
    find_record,
    fits,
    inspect,
    store_timestamp,
    what_is_wrong,
    wrong_body,
)
from rocketbroker.codec.storefile.store_file import LogExtent, LogWindow
from rocketbroker.common.errors import StoreError
from rocketbroker.common.platform import data_ranges
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue

# A file is read in blocks that grow from the first size to the second.
_FIRST_BLOCK: Final = 64 << 10
_LAST_BLOCK: Final = 4 << 20
# Records taken one by one before numpy is worth its import.
_FEW: Final = 64
_NOTHING_WRITTEN: Final = "nothing is written there"
_BEYOND_END: Final = "a record goes beyond the end of the log"


class CorruptRange(NamedTuple):
    """Bytes of a file without a sound record: ``length`` bytes from ``position`` on, and the fault."""

    path: Path
    position: int
    length: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}: damaged from {self.position} to {self.position + self.length}: {self.why}"


class LogWalk:
    """Walk through the log from ``offset`` on, file by file.

    An iteration yields sound records and ends after the last one. ``offset`` is then the position where it stopped, and
    ``damage`` the fault there: empty if nothing is written there or the end is reached. To resume after the damage,
    call ``next_sound``, set ``offset``, and iterate again.

    Args:
        offset: begin of a record.
        check_crc: true to check the bodies of records as well.
        end: CommitLog offset at which the walk ends; ``None`` for the end of the last file.
        block: bytes to read at a time, and to search by columns from the first record on; by default few at first.
    """

    def __init__(
        self, queue: MappedFileQueue, offset: int, *, check_crc: bool, end: int | None = None, block: int = 0
    ) -> None:
        self._queue = queue
        self._check_crc = check_crc
        self._end = queue.max_file_end if end is None else end
        self._block = block
        self.offset = offset
        self.damage = ""

    def __iter__(self) -> Iterator[Stretch]:
        self.damage, block = "", self._block or _FIRST_BLOCK
        few = 0 if self._block else _FEW
        while self.offset < self._end and (file := self._queue.find(self.offset)) is not None:
            base = file.file_from_offset
            window = _window(file, self._end - base, block)
            walk = FileWalk(window, self.offset - base, self._end - base, few=few, check_bodies=self._check_crc)
            for stretch in walk:
                block = window.block = self._block or min(2 * window.block, _LAST_BLOCK)
                within = stretch if stretch.end_offset <= self._end else stretch.first(len(stretch) - 1)
                if len(within):
                    self.offset = within.end_offset
                    yield within
                if within is not stretch:
                    self.damage = _BEYOND_END
                    return
            self.offset = base + walk.position
            if walk.found is not Found.BLANK and file.size - walk.position >= BLANK_LENGTH:
                # There is room for more in the file where the walk stopped.
                rule, detail = walk.damage()
                if walk.found is Found.BROKEN and rule is not AuditRule.LOG_HOLE:
                    self.damage = detail
                return
            self.offset = base + file.size

    @property
    def why(self) -> str:
        """The reason why the walk stopped."""
        return self.damage or _NOTHING_WRITTEN

    def next_sound(self) -> int | None:
        """Return the CommitLog offset before the end at which the walk can resume after its stop, if any."""
        file = self._queue.find(self.offset)
        if file is None or self.offset >= self._end:
            return None
        position, window = self.offset - file.file_from_offset, _window(file, file.size)
        size = inspect(window, position)[1]
        if size and _can_resume(window, position + size):
            return self.offset + size
        found = _find_in(file, position + max(size, 1), self._end)
        while found is None and (file := self._queue.find(file.file_from_offset + file.size)) is not None:
            found = _find_in(file, 0, self._end)
        return found


def _find_in(file: MappedFile, position: int, end: int) -> int | None:
    """Return the offset of the first sound record of a file from a position on, and before a CommitLog offset."""
    window = _window(file, file.size)
    for start, stop in data_ranges(file.fd, position, min(file.size, end - file.file_from_offset)):
        low = start
        while (at := find_record(window, low, stop)) >= 0:
            if damage_in(window.at(at, inspect(window, at)[1]), at) is None:
                return file.file_from_offset + at
            low = at + 1
    return None


def leads_to_end(queue: MappedFileQueue, begin: int, end: int) -> bool:
    """Return true if a record begins at an offset or after it, and records and a BLANK follow up to ``end``.

    Both offsets are in one file. A record that was forged in the body of another leads nowhere.
    """
    file = queue.find(begin)
    found = None if file is None else _find_in(file, begin - file.file_from_offset, end)
    if found is None:
        return False
    walk = LogWalk(queue, found, check_crc=False, end=end)
    for _ in walk:
        pass
    return walk.offset == end


def _can_resume(window: LogWindow, position: int) -> bool:
    """Return true if no damage begins at a position, but a record, the end of the file, or unwritten space."""
    if window.file.size - position < BLANK_LENGTH or inspect(window, position)[0] is not Found.BROKEN:
        return True
    return what_is_wrong(window, position)[0] is AuditRule.LOG_HOLE


def _window(file: MappedFile, end: int, block: int = 0) -> LogWindow:
    extent = LogExtent(file.file_from_offset, file.size, min(file.size, end))
    return LogWindow(file, extent, block, extent.data_end)


def sound_until(file: MappedFile, position: int, end: int) -> tuple[int, str]:
    """Return the end of the sound records between two positions of a file, and the fault there.

    There is no fault at ``end``, or at a BLANK that reaches to it.
    """
    walk = FileWalk(_window(file, end, _LAST_BLOCK), position, end, few=_FEW, check_bodies=True)
    for stretch in walk:
        if stretch.end_offset > file.file_from_offset + end:
            return stretch.last_offset - file.file_from_offset, _BEYOND_END
    if walk.position == end or walk.found is Found.BLANK or file.size - walk.position < BLANK_LENGTH:
        return end, ""
    return walk.position, walk.damage()[1]


def store_timestamp_at(queue: MappedFileQueue, offset: int) -> int | None:
    """Return the store time in ms of the record at a CommitLog offset, or ``None`` when none begins there."""
    file = queue.find(offset)
    if file is None:
        return None
    window, position = _window(file, file.size), offset - file.file_from_offset
    is_record = inspect(window, position)[0] is Found.RECORD
    return store_timestamp(window.at(position, RECORD_HEADS[3].size)) if is_record else None


def is_begun(file: MappedFile) -> bool:
    """Return true if anything is written at the beginning of a file."""
    return any(file.read_at(0, BLANK_LENGTH))


_LONG: Final = Struct(">q")
#: Longest record without its body.
RECORD_ROOM: Final = 128 * 1024
# Bytes from which on records are found by columns.
_MANY_BYTES: Final = 64 << 10


class RawRecords(NamedTuple):
    """Whole records of one file: their size in bytes, and the earliest of their store times in ms.

    ``stretches`` are those that were found by columns; they use the memory of the bytes.
    """

    size: int
    earliest_ms: int | None
    stretches: Sequence[Stretch] = ()


def whole_records(data: ReadableBuffer, begin: int, offset: int, free: int) -> RawRecords:
    """Find the whole records from ``begin`` on that belong into one file, the BLANK that closes it included.

    A record that is incomplete in ``data`` is left for the next call.

    Args:
        begin: position of the first record in ``data``.
        offset: CommitLog offset of that record.
        free: bytes of its file from there on.

    Raises:
        StoreError: The first bytes are not those of a sound record at this offset.
    """
    many = RawRecords(0, None)
    if len(data) - begin >= _MANY_BYTES:
        many = _many_records(memoryview(data)[begin:], offset, free)
    at, earliest_ms = begin + many.size, many.earliest_ms
    while at - begin < free and at + BLANK_LENGTH <= len(data):
        size, magic = peek(data, at)
        left = free - (at - begin)
        if magic == BLANK_MAGIC_CODE and size == left:
            if at + size <= len(data):
                at += size
            break
        if at + BODY_POSITION > len(data):
            break
        (place,) = _LONG.unpack_from(data, at + PHYSICAL_OFFSET_POSITION)
        why = ""
        if not is_record(size, magic) or place != offset + at - begin or not fits(size, left):
            why = (
                f"they do not begin with a record of that offset: size {size}, magic {magic}, offset {place}, and its "
                f"file has {left} bytes left"
            )
        elif at + size > len(data):
            break
        record = memoryview(data)[at : at + size]
        if why := why or _damage(record):
            if at > begin:
                break  # the next call reports it
            raise StoreError(f"the bytes for {offset} of the CommitLog are wrong: {why}")
        stored = store_timestamp(record)
        earliest_ms = stored if earliest_ms is None else min(earliest_ms, stored)
        at += size
    return RawRecords(at - begin, earliest_ms, many.stretches)


def _many_records(data: memoryview, offset: int, free: int) -> RawRecords:
    """Find sound records by columns, up to the first one that is not whole or not sound."""
    extent = LogExtent(offset, free, min(len(data), free))
    walk = FileWalk(LogWindow.on(data, extent), 0, extent.data_end, check_bodies=True)
    stretches: list[Stretch] = []
    # The walk raises an error at a record that is not whole, after all before it.
    with suppress(StoreError):
        stretches.extend(walk)
    if not stretches:
        return RawRecords(0, None)
    earliest_ms = min(int(stretch.records.field("store_timestamp").min()) for stretch in stretches)
    return RawRecords(stretches[-1].end_offset - offset, earliest_ms, stretches)


def _damage(record: memoryview) -> str:
    """Return the fault of a record whose length is known, empty if it has none."""
    end = body_range(record)[1]
    width = 2 if record[7] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    tail = record[end:]
    topic_end = width + int.from_bytes(tail[:width], "big")
    if topic_end + 2 + int.from_bytes(tail[topic_end : topic_end + 2], "big") != len(tail):
        return "the lengths in the record do not add up"
    return wrong_body(record)


def lengths_agree(head: ReadableBuffer) -> bool:
    """Return true if totalSize and bodyLength in the head of a record leave its topic and properties a likely room.

    ``head`` has the longest head's length at least.
    """
    size, body_end = peek(head)[0], body_range(bytes(head[: RECORD_HEADS[3].size]))[1]
    return 0 < size - body_end <= RECORD_ROOM


def is_record(size: int, magic: int) -> bool:
    """Return true if the first two fields are those of a record, and not of a BLANK, zeros, or something foreign."""
    return size > BODY_POSITION and magic in {MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2}
