"""The index of one queue: 20 bytes for each message (org.apache.rocketmq.store.ConsumeQueue).

``next_offset`` is the queue offset of the next message; readers find the end at ``max_offset``. Messages between the
two are in the CommitLog but not dispatched yet.
"""

import os
from collections.abc import Callable, Iterator
from itertools import starmap
from pathlib import Path

from rocketbroker.codec.message.raw_records import QueuedRecord
from rocketbroker.codec.storefile.consume_queue_layout import (
    CQ_STORE_UNIT_SIZE,
    ENTRY,
    FILLER_ENTRY,
    SIZE_POSITION,
    QueueEntry,
    is_filler,
    is_written,
)
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

# Entries that ``go_on_at`` writes at once.
_FILLED_AT_ONCE = 65536
# Damage is rarely longer than some pages of entries.
_FAR = 2048


class ConsumeQueue(ConsumeQueueInterface):
    """One queue of a topic; each message has one entry.

    Args:
        directory: its folder, ``consumequeue/<topic>/<queueId>``.
        file_size: bytes of each file, a multiple of 20.
    """

    __slots__ = ("_end", "_file", "_pack", "_ready", "_start")

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_size: int, file_system: FileSystem = LOCAL
    ) -> None:
        super().__init__(topic, queue_id, directory, file_size, file_system)
        # The file being written, the queue offsets it spans, and the one up to which it has blocks.
        self._file: MappedFile | None = None
        self._pack: Callable[..., None]
        self._start = self._ready = self._end = 0

    def make_room(self, end: int) -> None:
        if self.next_offset == self.max_offset:
            # Nothing is pending: select the file of the next entry as ``put`` would.
            self._select_file(self.next_offset)
        self.queue.make_room(self.max_offset * CQ_STORE_UNIT_SIZE, end * CQ_STORE_UNIT_SIZE)
        last = self.queue.find((end - 1) * CQ_STORE_UNIT_SIZE)
        if last is not None:
            self.room_end = (last.file_from_offset + last.allocated) // CQ_STORE_UNIT_SIZE

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        if not self._start <= queue_offset < self._ready:
            self._make_ready(queue_offset)
        position = (queue_offset - self._start) * CQ_STORE_UNIT_SIZE
        self._pack(position, physical_offset, size, tags_code)
        self._file.wrote = position + CQ_STORE_UNIT_SIZE  # type: ignore[union-attr]
        self.max_offset = queue_offset + 1
        self.dirty = True

    def put_entries(self, queue_offset: int, entries: bytes) -> None:
        # After an error none of them is entered.
        done, count = 0, len(entries) // CQ_STORE_UNIT_SIZE
        while done < count:
            if not self._start <= queue_offset + done < self._end:
                self._select_file(queue_offset + done)
            file: MappedFile = self._file  # type: ignore[assignment]  # selected
            upto = min(count, self._end - queue_offset)
            position = (queue_offset + done - self._start) * CQ_STORE_UNIT_SIZE
            end = position + (upto - done) * CQ_STORE_UNIT_SIZE
            file.ensure_allocated(end)
            file.write(position, end, entries[done * CQ_STORE_UNIT_SIZE : upto * CQ_STORE_UNIT_SIZE])
            done = upto
        self.max_offset = queue_offset + count
        self.dirty = True

    def _make_ready(self, queue_offset: int) -> None:
        """Select the file that holds ``queue_offset`` and allocate a block for its entry."""
        if not self._start <= queue_offset < self._end:
            self._select_file(queue_offset)
        file: MappedFile = self._file  # type: ignore[assignment]  # selected
        file.ensure_allocated((queue_offset + 1 - self._start) * CQ_STORE_UNIT_SIZE)
        self._ready = self._start + file.allocated // CQ_STORE_UNIT_SIZE

    def _select_file(self, queue_offset: int) -> None:
        """Make the file that holds ``queue_offset`` the one being written; a first file may begin in the middle."""
        queue = self.queue
        per_file = queue.file_size // CQ_STORE_UNIT_SIZE
        base = queue_offset // per_file * per_file
        if queue_offset * CQ_STORE_UNIT_SIZE < queue.min_offset:
            # The first files were lost, and the entries of the others are written again.
            queue.delete_all()
        if not queue.files:
            self.min_offset = queue_offset
        file = queue.find(queue_offset * CQ_STORE_UNIT_SIZE)
        while file is None:
            created = queue.create_next(base * CQ_STORE_UNIT_SIZE)
            file = queue.find(queue_offset * CQ_STORE_UNIT_SIZE)
            if file is not created:
                self._fill(created, per_file)
        if file.wrote < (queue_offset - base) * CQ_STORE_UNIT_SIZE:
            self._fill(file, queue_offset - base)
        self._file = file
        self._pack = file.packer(ENTRY)
        self._start = self._ready = file.file_from_offset // CQ_STORE_UNIT_SIZE
        self._end = self._start + per_file

    def _fill(self, file: MappedFile, entries: int) -> None:
        """Write filler entries before a queue that begins in the middle of a file."""
        end = entries * CQ_STORE_UNIT_SIZE
        file.ensure_allocated(end)
        file.write(file.wrote, end, FILLER_ENTRY * (entries - file.wrote // CQ_STORE_UNIT_SIZE))
        self.min_offset = file.file_from_offset // CQ_STORE_UNIT_SIZE + entries

    def entries(self, queue_offset: int, limit: int) -> Iterator[tuple[int, int, int]]:
        return ENTRY.iter_unpack(self.entry_bytes(queue_offset, limit))

    def entry_bytes(self, queue_offset: int, limit: int) -> memoryview:
        file = self.queue.find(queue_offset * CQ_STORE_UNIT_SIZE)
        if file is None:
            return memoryview(b"")
        position = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        count = min(limit, self.max_offset - queue_offset, (file.file_size - position) // CQ_STORE_UNIT_SIZE)
        return file.buffer[position : position + max(count, 0) * CQ_STORE_UNIT_SIZE]

    def entry(self, queue_offset: int) -> QueueEntry | None:
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        return next(starmap(QueueEntry, self.entries(queue_offset, 1)), None)

    def expected_record(self, queue_offset: int) -> QueuedRecord | None:
        entry = self.entry(queue_offset)
        return None if entry is None else QueuedRecord(queue_offset, *entry)

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        position = queue_offset * CQ_STORE_UNIT_SIZE
        file = self.queue.find(position)
        return (str(file.path), position - file.file_from_offset) if file else (str(self.queue.directory), position)

    @staticmethod
    def unsynced_entries(file: MappedFile) -> Iterator[tuple[int, int, int]]:
        start = file.flushed - file.flushed % CQ_STORE_UNIT_SIZE
        for number, (offset, size, _) in enumerate(ENTRY.iter_unpack(file.buffer[start : file.wrote])):
            if not is_filler(offset, size):
                yield start + number * CQ_STORE_UNIT_SIZE, offset, size

    def load(self) -> None:
        self.queue.load()
        for file in reversed(self.queue.files):
            file.wrote = file.flushed = written_bytes(file)
            if file.wrote or file is self.queue.files[0]:
                # The files after it were created for messages that never came.
                self.max_offset = self.next_offset = (file.file_from_offset + file.wrote) // CQ_STORE_UNIT_SIZE
                break
        if self.queue.files:
            self.min_offset = self._first_entry(self.queue.files[0])

    @staticmethod
    def _first_entry(file: MappedFile) -> int:
        """Return the queue offset of the first entry of a file that is not a filler."""
        low, high = 0, file.wrote // CQ_STORE_UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = ENTRY.unpack_from(file.buffer, middle * CQ_STORE_UNIT_SIZE)
            if is_filler(offset, size):
                low = middle + 1
            else:
                high = middle
        return file.file_from_offset // CQ_STORE_UNIT_SIZE + low

    @property
    def begin_of_files(self) -> int | None:
        files = self.queue.files
        return files[0].file_from_offset // CQ_STORE_UNIT_SIZE if files else None

    def message_entry(self, queue_offset: int) -> QueueEntry | None:
        entry = self.entry(queue_offset)
        if entry is None or entry.size != MIN_RECORD_SIZE:
            return entry
        first = self.entry(self.position_of(entry.physical_offset))
        return first if first is not None and first.size != MIN_RECORD_SIZE else QueueEntry(entry.physical_offset, 0, 0)

    def end_of_record(self, queue_offset: int) -> int:
        return queue_offset + 1

    def position_of(self, physical_offset: int) -> int:
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = next(self.entries(middle, 1), (0, 0, 0))
            if is_written(size) and offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def has_before(self, physical_offset: int, queue_offset: int) -> bool:
        entries = self.entries(queue_offset, _FAR)
        return any(is_written(size) and offset < physical_offset for offset, size, _ in entries)

    def go_on_at(self, queue_offset: int) -> None:
        last = self.entry(self.max_offset - 1)
        if last is not None:
            filler = ENTRY.pack(last.physical_offset, MIN_RECORD_SIZE, 0)
            for begin in range(self.max_offset, queue_offset, _FILLED_AT_ONCE):
                self.put_entries(begin, filler * min(_FILLED_AT_ONCE, queue_offset - begin))
        else:
            self.queue.delete_all()
            self._start = self._ready = self._end = self.room_end = 0
            self._select_file(queue_offset)
            self.min_offset = self.max_offset = queue_offset
            self.dirty = True
        self.next_offset = queue_offset

    def hide_from(self, queue_offset: int) -> None:
        self.max_offset = self.next_offset = queue_offset

    def cut(self, queue_offset: int) -> None:
        if queue_offset < self.min_offset:
            self.queue.delete_all()
            self.min_offset = queue_offset
        self.hide_from(queue_offset)
        self.queue.truncate(queue_offset * CQ_STORE_UNIT_SIZE)
        # The zeros must be on disk before the checkpoint advances: the data that they hide would be taken for entries.
        self.dirty = True
        self._start = self._ready = self._end = self.room_end = 0

    def cut_doubtful(self, report: list[str], before_change: Callable[[], None]) -> bool:
        return False  # recovery compares the entries with the log

    def first_offset_from(self, physical_offset: int) -> int:
        low, high = self.min_offset, self.max_offset
        if low >= high or (self._read_physical_offset(low) or 0) >= physical_offset:
            return low
        while low < high:
            middle = probe = (low + high) // 2
            # Use the next sound entry in place of a damaged one.
            while (found := self._read_physical_offset(probe)) is None and probe + 1 < high:
                probe += 1
            if found is not None and found < physical_offset:
                low = probe + 1
            else:
                high = middle
        return low

    def _read_physical_offset(self, queue_offset: int) -> int | None:
        """Return the CommitLog offset in an entry; ``None`` when the entry is damaged or gone."""
        file = self.queue.find(queue_offset * CQ_STORE_UNIT_SIZE)
        if file is None:
            return None
        position = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        physical_offset, size, _ = ENTRY.unpack(file.read_at(position, CQ_STORE_UNIT_SIZE))
        return physical_offset if is_written(size) and physical_offset >= 0 else None

    def first_file_without_messages(self) -> MappedFile | None:
        files = self.queue.files
        if len(files) > 1 and files[1].wrote and files[1].file_from_offset <= self.min_offset * CQ_STORE_UNIT_SIZE:
            return files[0]
        return None

    def correct_min_offset(self, min_physical_offset: int) -> None:
        low, high = self.min_offset, self.max_offset
        first = self.entry(low)
        if first is not None and first.physical_offset >= min_physical_offset:
            return  # after a damaged entry, bisection would skip sound ones
        while low < high:
            middle = (low + high) // 2
            entry = next(self.entries(middle, 1), None)
            if entry is None or entry[0] < min_physical_offset:
                low = middle + 1
            else:
                high = middle
        self.min_offset = low


def written_bytes(file: MappedFile) -> int:
    """Return the bytes of entries at the start of a file: entries are written in order, so bisection finds the end.

    It reads instead of using the mapping: touching a hole of a tmpfs allocates a page, and raises SIGBUS without room.
    """
    low, high = 0, file.file_size // CQ_STORE_UNIT_SIZE
    with file.opened() as fd:
        while low < high:
            middle = (low + high) // 2
            size = int.from_bytes(os.pread(fd, 4, middle * CQ_STORE_UNIT_SIZE + SIZE_POSITION), "big", signed=True)
            if is_written(size):
                low = middle + 1
            else:
                high = middle
    return low * CQ_STORE_UNIT_SIZE
