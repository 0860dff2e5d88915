"""Entries of a complete ConsumeQueue as columns, and the records they point to, each checked against its entry."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_columns import as_text, binary_slices, number_array
from rocketbroker.analytics.files.commit_log_files import WINDOW_SIZE, LogFile, opened_log_file
from rocketbroker.analytics.files.queue_files import queue_files
from rocketbroker.analytics.files.store_files import StoreFolder, open_folder
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE, Entries, is_entry, is_filler_entry
from rocketbroker.codec.storefile.record_columns import Records, ScatteredRecords
from rocketbroker.common.errors import StoreError

# Entries read at a time: they and their columns fit into the processor's cache.
_BLOCK: Final = 32 << 10
_REMOTE_BLOCK: Final = WINDOW_SIZE // CQ_STORE_UNIT_SIZE


class QueueNotWholeError(StoreError):
    """A ConsumeQueue does not point to all its messages; callers read the log instead."""


class EntryRange(NamedTuple):
    """Entries of a queue from queue offset ``first`` to before ``end``."""

    topic: str
    queue_id: int
    first: int
    end: int


class Stretches(NamedTuple):
    """Stretches of the log with entries: number, index of the first entry, count of entries; columns of shape (n,)."""

    numbers: Positions
    firsts: Positions
    counts: Positions


@dataclass(frozen=True, slots=True)
class QueueEntries:
    """Consecutive entries, the first at queue offset ``first``; columns of shape (n,)."""

    first: int
    offsets: Positions
    sizes: Positions

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> "QueueEntries":
        """Return the entries from index ``begin`` to before ``end``."""
        return QueueEntries(self.first + begin, self.offsets[begin:end], self.sizes[begin:end])

    def between(self, low: int, high: int) -> "QueueEntries":
        """Return the entries with physical offsets from ``low`` to before ``high``."""
        return self.part(*map(int, np.searchsorted(self.offsets, (low, high))))

    def stretches(self, begins: Positions) -> Stretches:
        """Cut the entries at the physical offsets ``begins``, the first of which is not after the first entry."""
        low, high = np.searchsorted(begins, self.offsets[[0, -1]], "right")
        cuts = np.concatenate(([0], np.searchsorted(self.offsets, begins[low:high])))
        counts = np.diff(cuts, append=len(self))
        seen = np.flatnonzero(counts)
        return Stretches(low - 1 + seen, cuts[seen], counts[seen])


def checked_entries(name: str, first: int, offsets: Positions, sizes: Positions) -> QueueEntries:
    """Return entries of the queue ``name``; raise :class:`QueueNotWholeError` unless they are in log order."""
    if len(offsets) and (offsets[0] < 0 or sizes.min() <= 0 or (offsets[1:] < offsets[:-1] + sizes[:-1]).any()):
        raise QueueNotWholeError(f"{name}: entries do not point to records in log order")
    return QueueEntries(first, offsets, sizes)


class CheckedQueue:
    """Entries of one ConsumeQueue without missing files, which must point to records in log order.

    Methods that return entries raise :class:`QueueNotWholeError` if one is invalid, missing or not in order.
    """

    def __init__(self, folder: StoreFolder, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._files = queue_files(folder, CONSUME_QUEUE, topic, queue_id)
        self._at_once = _BLOCK if folder.root.is_local else _REMOTE_BLOCK
        for before, _ in self._files.gaps():
            raise QueueNotWholeError(f"{self.name}: a file is missing after {before.path}")

    @property
    def name(self) -> str:
        """Topic and number, for messages."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def capacity(self) -> int:
        """Number of entries that fit into the files."""
        return self._files.capacity

    def newest(self) -> tuple[int, int] | None:
        """Return physical offset and size in the newest entry; ``None`` without one.

        Only a few entries are read, so zeros between entries may hide the newest one.
        """
        last = self._files.last_written()
        if last is None or not is_entry(last[1])[0]:
            return None
        return int(last[1]["commit_log_offset"][0]), int(last[1]["size"][0])

    def whole(self) -> QueueEntries:
        """Return all entries without fillers."""
        first = self._files.first
        entries = self._files.read(first, self._files.end)
        offsets, sizes = _columns(entries)
        end = len(sizes) - _leading((offsets | sizes)[::-1] == 0)
        begin = _leading(is_filler_entry(entries[:end]))
        return checked_entries(self.name, first + begin, offsets[begin:end], sizes[begin:end])

    def blocks(self) -> Iterator[QueueEntries]:
        """Yield the entries without fillers in blocks, up to the first zeros; nothing after these is read."""
        behind = 0
        for first, entries in self._pieces():
            offsets, sizes = _columns(entries)
            begin = 0 if behind else _leading(is_filler_entry(entries))
            end = len(sizes) if sizes[-1] else len(sizes) - _leading((offsets | sizes)[::-1] == 0)
            if begin < end:
                block = checked_entries(self.name, first + begin, offsets[begin:end], sizes[begin:end])
                if block.offsets[0] < behind:
                    raise QueueNotWholeError(f"{self.name}: entries do not point to records in log order")
                behind = int(block.offsets[-1] + block.sizes[-1])
                yield block
            if end < len(sizes):
                return

    def every(self, step: int, first: int) -> Positions:
        """Return unchecked offsets of each ``step``-th entry, including number ``first``, and the last before zeros."""
        found = [np.empty(0, np.int64)]
        for number, entries in self._pieces():
            end = len(entries) if entries["size"][-1] else _leading(entries["size"] != 0)
            offsets = entries["commit_log_offset"][:end]
            found += [offsets[(first - number) % step :: step].astype(np.int64), offsets[-1:].astype(np.int64)]
            if end < len(entries):
                break
        return np.concatenate(found)

    def _pieces(self) -> Iterator[tuple[int, Entries]]:
        at, end = self._files.first, self._files.end
        for number, entries in self._files.pieces(at_once=self._at_once):
            if number != at or not len(entries):
                break
            yield number, entries
            at += len(entries)
        if at < end:
            raise QueueNotWholeError(f"{self.name}: a file became shorter while it was read")

    def range(self, first: int, end: int) -> QueueEntries:
        """Return the entries from queue offset ``first`` to before ``end``."""
        return checked_entries(self.name, first, *_columns(self._files.read(first, end)))


def _columns(entries: Entries) -> tuple[Positions, Positions]:
    return entries["commit_log_offset"].astype(np.int64), entries["size"].astype(np.int64)


def _leading(mask: NDArray[np.bool_]) -> int:
    """Return the number of true values before the first false one."""
    return len(mask) if mask.all() else int(mask.argmin())


# Records closer together than this many bytes are read at once: a second read would take as long.
_NEAR_LOCAL: Final = 16 << 10
_NEAR_REMOTE: Final = 1 << 20


class _Wanted:
    """Entries of all queues by physical offset; columns of shape (n,)."""

    def __init__(self, folder: StoreFolder, ranges: tuple[EntryRange, ...]) -> None:
        parts = [CheckedQueue(folder, each.topic, each.queue_id).range(each.first, each.end) for each in ranges]
        offsets = np.concatenate([part.offsets for part in parts])
        order = np.argsort(offsets, kind="stable")
        self.ranges = ranges
        self.offsets: Positions = offsets[order]
        self.sizes: Positions = np.concatenate([part.sizes for part in parts])[order]
        self.queue_offsets = np.concatenate([np.arange(each.first, each.end) for each in ranges])[order]
        self.queues = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]


def queued_records(file: LogFile, ranges: tuple[EntryRange, ...]) -> Iterator[Records]:
    """Yield the records of ``file`` that the entries point to, by offset, about 16 MiB at a time.

    Their memory is reused for the next ones. Records yielded before an error are valid.

    Raises:
        QueueNotWholeError: an entry does not point to its record.
    """
    folder = open_folder(file.root)
    wanted = _Wanted(folder, ranges)
    positions, sizes = wanted.offsets - file.base, wanted.sizes
    with opened_log_file(file) as source:
        if positions[0] < 0 or (positions + sizes > file.size).any():
            raise QueueNotWholeError(f"entries point outside {file.path}")
        near = _NEAR_LOCAL if file.root.is_local else _NEAR_REMOTE
        reader = ScatteredRecords(source, file.base, near, WINDOW_SIZE)
        memory = np.empty(WINDOW_SIZE, np.uint8)
        for numbers in reader.groups(positions, sizes):
            claimed = reader.claimed(positions[numbers], sizes[numbers])
            if not claimed.all():
                size = sizes[numbers][np.argmin(claimed)]
                raise QueueNotWholeError(f"an entry points to no record of {size} bytes")
            records, sound = reader.read(positions[numbers], sizes[numbers], memory)
            _check(records, sound, wanted, numbers)
            yield records


def _check(records: Records, right: NDArray[np.bool_], wanted: _Wanted, numbers: Positions) -> None:
    """Raise an error unless each record is that of its entry."""
    right &= records.field("queue_offset") == wanted.queue_offsets[numbers]
    queue_ids = np.array([each.queue_id for each in wanted.ranges], np.int64)
    right &= records.field("queue_id") == queue_ids[wanted.queues[numbers]]
    # Lengths of a record that is not sound may point anywhere, so topics are sliced only once all are.
    if right.all():
        topics = pa.array([each.topic.encode("utf-8", "surrogatepass") for each in wanted.ranges], pa.binary())
        found = as_text(binary_slices(records.data, records.topic_at, records.topic_length)).cast(pa.binary())
        same_topic = pc.equal(found, topics.take(number_array(wanted.queues[numbers])))
        right &= same_topic.to_numpy(zero_copy_only=False)
    if not right.all():
        wrong = int(wanted.offsets[numbers][np.argmin(right)])
        raise QueueNotWholeError(f"the entry that points to offset {wrong} does not match the record there")
