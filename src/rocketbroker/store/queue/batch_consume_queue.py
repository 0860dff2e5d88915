"""The index of one queue of a topic with ``queue.type=BatchCQ`` (org.apache.rocketmq.store.queue.BatchConsumeQueue).

An entry takes 46 bytes and represents one record: a message or a whole batch, with as many queue offsets as messages.
So an entry has two numbers: its place in the files, and the queue offset of its first message, which ascends with it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import BODY_POSITION
from rocketbroker.codec.message.raw_records import QueuedRecord
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.consume_queue_layout import (
    BATCH_CQ_STORE_UNIT_SIZE,
    BATCH_ENTRY,
    ENTRY,
    FILLER_SIZE,
    INVALID_COMPACTED_OFFSET,
    QueueEntry,
    inner_batch,
    is_filler,
    is_written,
)
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.common.errors import CorruptRecordError, StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

# Returns bytes of the CommitLog by offset and size, ``None`` where there are fewer.
ReadLog = Callable[[int, int], ReadableBuffer | None]

# Damage is rarely longer than some pages of entries.
_FAR = 2048


class BatchEntry(NamedTuple):
    """One record: CommitLog offset, size, tags code, store time in ms, first queue offset, and number of messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    messages: int

    @property
    def end(self) -> int:
        """Queue offset after its last message."""
        return self.base + self.messages

    @property
    def begin_in_log(self) -> int:
        """CommitLog offset; before the whole log for an entry that only marks where the queue continues."""
        return -1 if is_filler(self.physical_offset, self.size) else self.physical_offset


_NOTHING = BatchEntry(0, 0, 0, 0, 0, 0)


class BatchConsumeQueue(ConsumeQueueInterface):
    """A queue whose records may be batches.

    Args:
        directory: its folder, ``batchconsumequeue/<topic>/<queueId>``.
        file_size: bytes of each file, a multiple of 46.
        read_log: reads records, for the fields of an entry that are not arguments of ``put``.
    """

    __slots__ = ("_end_number", "_read_log", "_room_number", "is_doubtful")

    holds_batches: ClassVar[bool] = True

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_size: int,
        read_log: ReadLog,
        file_system: FileSystem = LOCAL,
    ) -> None:
        super().__init__(topic, queue_id, directory, file_size, file_system)
        self._read_log = read_log
        # Number of the next entry.
        self._end_number = 0
        # End of the allocated entries: records were appended for them, or are about to be.
        self._room_number = 0
        # True if loading found entries beyond the end that contradict those before it.
        self.is_doubtful = False

    # -- entries by number

    @property
    def _numbers(self) -> range:
        """Numbers of the existing entries."""
        files = self.queue.files
        return range(files[0].file_from_offset // BATCH_CQ_STORE_UNIT_SIZE if files else 0, self._end_number)

    def _mapped(self, number: int) -> BatchEntry:
        """Return an entry; one of size 0 if it does not exist."""
        file = self.queue.find(number * BATCH_CQ_STORE_UNIT_SIZE)
        if file is None:
            return _NOTHING
        position = number * BATCH_CQ_STORE_UNIT_SIZE - file.file_from_offset
        return BatchEntry(*BATCH_ENTRY.unpack_from(file.buffer, position)[:6])

    def _read(self, number: int) -> BatchEntry:
        """Return an entry like ``_mapped``, by reading the file (blocks)."""
        file = self.queue.find(number * BATCH_CQ_STORE_UNIT_SIZE)
        if file is None:
            return _NOTHING
        position = number * BATCH_CQ_STORE_UNIT_SIZE - file.file_from_offset
        return BatchEntry(*BATCH_ENTRY.unpack(file.read_at(position, BATCH_CQ_STORE_UNIT_SIZE))[:6])

    def _holding(self, queue_offset: int, entry_at: Callable[[int], BatchEntry]) -> int:
        """Return the number of the last entry that begins at or before a queue offset, else the first number."""
        numbers = self._numbers
        found = bisect_right(numbers, queue_offset, key=lambda number: entry_at(number).base)
        return numbers.start + max(found - 1, 0)

    def _from_physical(self, physical_offset: int, entry_at: Callable[[int], BatchEntry]) -> int:
        """Return the number of the first entry of a record at or after a physical offset, the end if there is none."""
        numbers = self._numbers
        return numbers.start + bisect_left(numbers, physical_offset, key=lambda number: entry_at(number).begin_in_log)

    def _near(self, number: int, queue_offset: int) -> int:
        """Return the entry that holds a queue offset where bisection missed it: the one before, else the one after.

        An entry damaged since the start misleads the bisection.
        """
        around = range(max(number - _FAR, self._numbers.start), number)
        held = (each for each in around if (entry := self._mapped(each)).base <= queue_offset < entry.end)
        return next(held, number + 1)

    # -- entries by queue offset

    def batches(self, queue_offset: int, limit: int) -> Iterator[BatchEntry]:
        """Return up to ``limit`` entries from the one that holds a queue offset, or the next one, on."""
        number = self._first_number(queue_offset)
        yield from map(self._mapped, range(number, min(number + limit, self._end_number)))

    def _first_number(self, queue_offset: int) -> int:
        number = self._holding(queue_offset, self._mapped)
        return number if self._mapped(number).end > queue_offset else self._near(number, queue_offset)

    def batch_bytes(self, queue_offset: int, limit: int) -> Iterator[memoryview]:
        """Return the bytes of the same entries as ``batches``, a part for each file."""
        number = self._first_number(queue_offset)
        end = min(number + limit, self._end_number)
        while number < end and (file := self.queue.find(number * BATCH_CQ_STORE_UNIT_SIZE)) is not None:
            first = number
            number = min(end, (file.file_from_offset + file.file_size) // BATCH_CQ_STORE_UNIT_SIZE)
            start, stop = (each * BATCH_CQ_STORE_UNIT_SIZE - file.file_from_offset for each in (first, number))
            yield file.buffer[start:stop]

    def entries(self, queue_offset: int, limit: int) -> Iterator[tuple[int, int, int]]:
        return (entry[:3] for entry in self.batches(queue_offset, limit))

    def entry_bytes(self, queue_offset: int, limit: int) -> memoryview:
        return memoryview(b"".join(ENTRY.pack(*entry) for entry in self.entries(queue_offset, limit)))

    def _batch(self, queue_offset: int) -> BatchEntry | None:
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        entry = self._mapped(self._holding(queue_offset, self._mapped))
        return entry if entry.base <= queue_offset < entry.end else None

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the entry of the record that holds a message, or ``None`` if the queue does not hold it.

        For offsets that ``go_on_at`` marked as used, return the entry of the last record before them.
        """
        batch = self._batch(queue_offset)
        number = self._holding(queue_offset, self._mapped)
        while batch is not None and batch.size == MIN_RECORD_SIZE and number > self._numbers.start:
            number -= 1
            batch = self._mapped(number)
        return None if batch is None else QueueEntry(*batch[:3])

    def message_entry(self, queue_offset: int) -> QueueEntry | None:
        return self.entry(queue_offset)

    def end_of_record(self, queue_offset: int) -> int:
        batch = self._batch(queue_offset)
        return queue_offset + 1 if batch is None else batch.end

    def expected_record(self, queue_offset: int) -> QueuedRecord | None:
        batch = self._batch(queue_offset)
        return None if batch is None else QueuedRecord(batch.base, *batch[:3])

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        position = self._holding(queue_offset, self._mapped) * BATCH_CQ_STORE_UNIT_SIZE
        file = self.queue.find(position)
        return (str(file.path), position - file.file_from_offset) if file else (str(self.queue.directory), position)

    @staticmethod
    def unsynced_entries(file: MappedFile) -> Iterator[tuple[int, int, int]]:
        start = file.flushed - file.flushed % BATCH_CQ_STORE_UNIT_SIZE
        for number, (offset, size, *_) in enumerate(BATCH_ENTRY.iter_unpack(file.buffer[start : file.wrote])):
            if not is_filler(offset, size):
                yield start + number * BATCH_CQ_STORE_UNIT_SIZE, offset, size

    # -- writing

    def make_room(self, end: int) -> None:
        # One more entry, for one record: the entries for the offsets are not known before.
        waiting = self.next_offset - self.max_offset
        # An entry has at least one message, and some messages with allocated room may not have been appended.
        room_number = min(max(self._room_number, self._end_number), self._end_number + waiting)
        room_number += end - self.next_offset
        self.queue.make_room(self._end_number * BATCH_CQ_STORE_UNIT_SIZE, room_number * BATCH_CQ_STORE_UNIT_SIZE)
        self._room_number = room_number

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        record = self._read_log(physical_offset, size)
        if record is None:
            raise StoreError(f"the CommitLog has no record of {size} bytes at {physical_offset}")
        try:
            store_timestamp, count = inner_batch(record)
        except CorruptRecordError as error:
            raise StoreError(f"the record at {physical_offset} of the CommitLog is not valid: {error}") from error
        self._append(BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count))

    def put_entries(self, queue_offset: int, entries: bytes) -> None:
        # Each has one message. After an error those before it are entered.
        for number, entry in enumerate(ENTRY.iter_unpack(entries), queue_offset):
            if number >= self.max_offset:
                self.put(number, *entry)

    def _append(self, entry: BatchEntry) -> None:
        position = self._end_number * BATCH_CQ_STORE_UNIT_SIZE
        file = self.queue.find(position) or self.queue.create_next()
        start = position - file.file_from_offset
        end = start + BATCH_CQ_STORE_UNIT_SIZE
        file.ensure_allocated(end)
        file.write(start, end, BATCH_ENTRY.pack(*entry, INVALID_COMPACTED_OFFSET, 0))
        if not self._numbers:
            self.min_offset = entry.end if entry.begin_in_log < 0 else entry.base
        self._end_number += 1
        self.max_offset = entry.end
        self.dirty = True

    def go_on_at(self, queue_offset: int) -> None:
        last = self._last
        if is_written(last.size) and last.begin_in_log >= 0:
            # Readers find no such message there, and continue after it.
            place, stored = last.physical_offset, last.store_timestamp
            self._append(BatchEntry(place, MIN_RECORD_SIZE, 0, stored, queue_offset - 1, 1))
        else:
            self._delete_all()
            self._append(BatchEntry(0, FILLER_SIZE, 0, 0, queue_offset - 1, 1))
        self.next_offset = queue_offset

    @property
    def _last(self) -> BatchEntry:
        """The last entry; one of size 0 in an empty queue."""
        return self._mapped(self._numbers[-1]) if self._numbers else _NOTHING

    def _delete_all(self) -> None:
        self.queue.delete_all()
        self._end_number = 0

    def hide_from(self, queue_offset: int) -> None:
        numbers = self._numbers
        self._end_number = numbers.start + bisect_left(numbers, queue_offset, key=lambda each: self._mapped(each).base)
        self.max_offset = self.next_offset = queue_offset

    def cut(self, queue_offset: int) -> None:
        if queue_offset < self.min_offset:
            self._delete_all()
            self.min_offset = queue_offset
        self.hide_from(queue_offset)
        self.queue.truncate(self._end_number * BATCH_CQ_STORE_UNIT_SIZE)
        # The zeros must be on disk before the checkpoint advances: the data that they hide would be taken for entries.
        self.dirty = True
        if self._numbers and self._last.end < queue_offset:
            # The offsets between the two were used by messages that the log has lost.
            self.go_on_at(queue_offset)

    # -- start

    def load(self) -> None:
        # The end is that of the entries that agree with their predecessors.
        self.queue.load()
        self._end_number = self._numbers.start + self._count_sound()
        for file in self.queue.files:
            end = self._end_number * BATCH_CQ_STORE_UNIT_SIZE - file.file_from_offset
            file.wrote = file.flushed = min(max(end, 0), file.file_size)
        if self._numbers:
            first, last = self._mapped(self._numbers[0]), self._mapped(self._numbers[-1])
            self.min_offset = first.end if first.begin_in_log < 0 else first.base
            self.max_offset = self.next_offset = last.end

    def _count_sound(self) -> int:
        """Return the number of certainly sound entries, and set ``is_doubtful`` if something else follows them."""
        count = end = physical = 0
        before, ended = (0,) * 6, False
        for file in self.queue.files:
            # Read instead of using the mapping: see ``written_bytes``.
            data = file.read_at(0, file.file_size)
            if ended:
                self.is_doubtful = self.is_doubtful or any(data)
                continue
            for offset, size, code, stored, base, messages, _, _ in BATCH_ENTRY.iter_unpack(data):
                fields = offset, size, code, stored, base, messages
                follows = base == end and size > 0 and messages > 0 and offset >= physical
                if not follows and not self._may_follow(BatchEntry(*before), BatchEntry(*fields)):
                    ended = True
                    break
                count, end, physical, before = count + 1, base + messages, offset, fields
            written = (count + self._numbers.start) * BATCH_CQ_STORE_UNIT_SIZE - file.file_from_offset
            self.is_doubtful = ended and data.count(0, written) < len(data) - written
        # Either the first contradicting entry or the one before it may be wrong.
        agrees = self.agrees(BatchEntry(*before))
        self.is_doubtful = self.is_doubtful or not agrees
        return count if agrees else count - 1

    def _may_follow(self, before: BatchEntry, entry: BatchEntry) -> bool:
        """Return true if an entry can follow another; with offsets between them, both must agree with their records."""
        if entry.base != before.end and not (self.agrees(before) and self.agrees(entry)):
            return False
        return (
            is_written(entry.size)
            and entry.messages > 0
            and entry.base >= before.end
            and entry.physical_offset >= before.physical_offset
        )

    def agrees(self, entry: BatchEntry) -> bool:
        """Return true if an entry agrees with its record, as far as the log has it (blocks)."""
        if entry.size <= MIN_RECORD_SIZE or entry.begin_in_log < 0:
            return True
        record = self._read_log(entry.physical_offset, entry.size)
        if record is None:
            return True
        if not self.record_check.is_head(bytes(record[:BODY_POSITION]), (entry.base, *entry[:3])):
            return False
        try:
            return inner_batch(record)[1] == entry.messages
        except CorruptRecordError:
            return True

    def cut_doubtful(self, report: list[str], before_change: Callable[[], None]) -> bool:
        if not self.is_doubtful:
            return False
        path, position = self.place_of(self.max_offset)
        before_change()
        report.append(f"{path}: entries from about {position} on contradict each other or the log, and are rebuilt")
        self.cut(self.max_offset)
        self.is_doubtful = False
        return True

    @property
    def begin_of_files(self) -> int | None:
        """First queue offset in its files, 0 before any file was removed; ``None`` without files."""
        files = self.queue.files
        if not files:
            return None
        return self._mapped(self._numbers.start).base if files[0].file_from_offset else 0

    def position_of(self, physical_offset: int) -> int:
        number = self._from_physical(physical_offset, self._mapped)
        return self._mapped(number).base if number < self._end_number else self.max_offset

    def has_before(self, physical_offset: int, queue_offset: int) -> bool:
        entries = self.batches(queue_offset, _FAR)
        return any(is_written(entry.size) and entry.begin_in_log < physical_offset for entry in entries)

    # -- cleaning

    def first_offset_from(self, physical_offset: int) -> int:
        number = self._from_physical(physical_offset, self._read)
        return max(self._read(number).base, self.min_offset) if number < self._end_number else self.max_offset

    def first_file_without_messages(self) -> MappedFile | None:
        files = self.queue.files
        if len(files) < 2:
            return None
        first = self._read(files[1].file_from_offset // BATCH_CQ_STORE_UNIT_SIZE)
        return files[0] if is_written(first.size) and first.base <= self.min_offset else None

    def correct_min_offset(self, min_physical_offset: int) -> None:
        number = self._from_physical(min_physical_offset, self._mapped)
        begin = self._mapped(number).base if number < self._end_number else self.max_offset
        self.min_offset = max(self.min_offset, begin)


class BatchQueues:
    """Factory of queues of batches.

    Args:
        topics: the topics by name; their attributes are read when a topic gets its first queue.
        read_log: reader of records for ``BatchConsumeQueue``.
    """

    def __init__(self, directory: Path, file_size: int, topics: Mapping[str, TopicConfig], read_log: ReadLog) -> None:
        self.directory = directory
        self.file_size = file_size
        self._topics = topics
        self._read_log = read_log

    def is_batch(self, topic: str) -> bool:
        """Return true if a topic is known to have queues of batches."""
        config = self._topics.get(topic)
        return config is not None and config.is_batch_cq

    def topics(self) -> list[str]:
        """Return all known topics of batches."""
        return [topic for topic, config in self._topics.items() if config.is_batch_cq]

    def make(self, topic: str, queue_id: int, file_system: FileSystem) -> BatchConsumeQueue:
        folder = self.directory / topic / str(queue_id)
        return BatchConsumeQueue(topic, queue_id, folder, self.file_size, self._read_log, file_system)

    def check_folder(self, folder: Path, *, of_batches: bool) -> None:
        """Check that a topic's folder matches its attributes (``queueTypeShouldBe``).

        Raises:
            StoreError: It does not.
        """
        config = self._topics.get(folder.name)
        if config is None or config.is_batch_cq is of_batches:
            return
        has = "has" if config.is_batch_cq else "does not have"
        raise StoreError(
            f"{folder} exists, but topic {folder.name} {has} queue.type=BatchCQ in config/topics.json; if the topic "
            "is right, move the folder away: its queues are then rebuilt from the CommitLog"
        )
