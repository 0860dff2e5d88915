"""Records that ConsumeQueue entries point to, each checked against its entry."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.columns.row_mask import text_rows
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.log_window import WINDOW_SIZE
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.queues.queue_entries import CheckedQueue, EntryRange, QueueNotWholeError
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.storefile.record_columns import Records, ScatteredRecords

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
    with opened(folder, file.name, "commit-log file") as source:
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
    topics = sorted({each.topic for each in wanted.ranges})
    topic_numbers = np.array([topics.index(each.topic) for each in wanted.ranges], np.int64)[wanted.queues[numbers]]
    for number, topic in enumerate(topics):
        right &= (topic_numbers != number) | text_rows(
            records.data, Slices(records.topic_at, records.topic_length), {topic}
        )
    if not right.all():
        wrong = int(wanted.offsets[numbers][np.argmin(right)])
        raise QueueNotWholeError(f"the entry that points to offset {wrong} does not match the record there")
