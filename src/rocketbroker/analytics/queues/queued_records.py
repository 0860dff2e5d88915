"""The records that entries of ConsumeQueues lead to, read without what lies between them."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.columns.row_mask import text_rows
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.log_window import WINDOW_SIZE
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.queues.queue_entries import CheckedQueue, EntryRange, QueueNotWholeError
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_encoder import RECORD_HEADS
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.store_file import StoreFile

# Records are read at once when no more than so many bytes lie between them: what takes as long as another read.
_NEAR_LOCAL: Final = 16 << 10
_NEAR_REMOTE: Final = 1 << 20
# Behind the last record, so that the head of a broken one is inside.
_MARGIN: Final = RECORD_HEADS[3].size


class _Wanted:
    """What the entries of all queues say, by physical offset; columns of shape (n,)."""

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
    """The records of ``file`` that the entries lead to, by offset, some 16 MiB at a time.

    They lie in memory that is used again for the next. Raises :class:`QueueNotWholeError` where an entry does not lead
    to the record that it should; what was given before is right.
    """
    folder = open_folder(file.root)
    wanted = _Wanted(folder, ranges)
    near = _NEAR_LOCAL if file.root.is_local else _NEAR_REMOTE
    source = folder.open(file.name, "commit-log file")
    try:
        positions = wanted.offsets - file.base
        if positions[0] < 0 or (positions + wanted.sizes > file.size).any():
            raise QueueNotWholeError(f"entries lead out of {file.path}")
        memory = np.empty(0, np.uint8)
        for numbers in groups(positions, wanted.sizes, near, WINDOW_SIZE):
            _check_large(source, positions[numbers], wanted.sizes[numbers])
            runs = _runs(positions[numbers], wanted.sizes[numbers], near)
            length = sum(stop - start for start, stop in runs) + _MARGIN
            if len(memory) < length:
                memory = np.empty(max(length, WINDOW_SIZE), np.uint8)
            yield _records(_filled(source, memory[:length], runs), runs, wanted, numbers, file)
    finally:
        source.close()


def groups(positions: Positions, sizes: Positions, near: int, at_once: int) -> list[Positions]:
    """Numbers of the records in groups for which about ``at_once`` bytes are read, or one record.

    What lies between two is read with them if it is no more than ``near`` bytes.
    """
    between = np.diff(positions, append=positions[-1:]) - sizes
    read = sizes + np.where((between > 0) & (between <= near), between, 0)
    turns = np.flatnonzero(np.diff((np.cumsum(read) - 1) // at_once)) + 1
    return np.split(np.arange(len(positions)), turns) if len(positions) else []


def _runs(positions: Positions, sizes: Positions, near: int) -> list[tuple[int, int]]:
    """Stretches of the file in which all of the records lie."""
    ends = np.maximum.accumulate(positions + sizes)
    cuts = np.flatnonzero(positions[1:] - ends[:-1] > near) + 1
    firsts, lasts = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(positions)])) - 1
    return list(zip(positions[firsts].tolist(), ends[lasts].tolist(), strict=True))


def _check_large(source: StoreFile, positions: Positions, sizes: Positions) -> None:
    """Before memory is taken for a record larger than a group, see that it says so itself."""
    for number in np.flatnonzero(sizes > WINDOW_SIZE).tolist():
        if int.from_bytes(source.read_at(int(positions[number]), 4), "big") != sizes[number]:
            raise QueueNotWholeError(f"an entry leads to no record of {sizes[number]} bytes")


def _filled(source: StoreFile, memory: NDArray[np.uint8], runs: list[tuple[int, int]]) -> NDArray[np.uint8]:
    view, at = memory.data, 0
    for start, stop in runs:
        if source.read_into(start, view[at : at + stop - start]) < stop - start:
            raise QueueNotWholeError("entries lead behind the end of a file")
        at += stop - start
    memory[at:] = 0
    return memory


def _records(
    data: NDArray[np.uint8], runs: list[tuple[int, int]], wanted: _Wanted, numbers: Positions, file: LogFile
) -> Records:
    """The records of one group; each is that of its entry."""
    starts_of_runs = np.array([start for start, _ in runs], np.int64)
    lengths = np.array([stop - start for start, stop in runs], np.int64)
    placed = np.cumsum(lengths) - lengths
    positions = wanted.offsets[numbers] - file.base
    run = np.searchsorted(starts_of_runs, positions, side="right") - 1
    records = Records(0, data, positions - starts_of_runs[run] + placed[run])
    right = records.sound_each(wanted.offsets[numbers]) & (records.total_size == wanted.sizes[numbers])
    right &= records.field("queue_offset") == wanted.queue_offsets[numbers]
    queue_ids = np.array([each.queue_id for each in wanted.ranges], np.int64)
    right &= records.field("queue_id") == queue_ids[wanted.queues[numbers]]
    topics = sorted({each.topic for each in wanted.ranges})
    topic_numbers = np.array([topics.index(each.topic) for each in wanted.ranges], np.int64)[wanted.queues[numbers]]
    for number, topic in enumerate(topics):
        right &= (topic_numbers != number) | text_rows(data, Slices(records.topic_at, records.topic_length), {topic})
    if not right.all():
        wrong = int(wanted.offsets[numbers][np.argmin(right)])
        raise QueueNotWholeError(f"the entry that leads to offset {wrong} does not fit the record there")
    return records
