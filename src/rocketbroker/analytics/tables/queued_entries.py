"""Entries of a queue together with the records they lead to, for tables of messages that a queue lists."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.queues.queue_files import QueueSlice, read_entries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.analytics.tables.records_by_offset import RecordsByOffset
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.record_columns import Records

_FIELDS: Final = ("commit_log_offset", "size", "tags_code")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueuedEntries:
    """Entries of one queue, shape (n,) each, and their records; ``None`` where these cannot be read."""

    topic: str
    queue_id: int
    queue_offsets: Positions
    physical_offsets: Positions
    sizes: Positions
    tags_codes: Positions
    values: RecordValues | None

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def taken(self, numbers: Positions) -> "QueuedEntries":
        """Return the entries with these numbers."""
        values = self.values
        if values is not None and len(numbers) < len(self):
            values = RecordValues(_records(values.records, numbers), values.root)
        return replace(
            self,
            queue_offsets=self.queue_offsets[numbers],
            physical_offsets=self.physical_offsets[numbers],
            sizes=self.sizes[numbers],
            tags_codes=self.tags_codes[numbers],
            values=values,
        )


def queued_entries(folder: StoreFolder, slices: Iterator[QueueSlice], start: int = 0) -> Iterator[QueuedEntries]:
    """Yield the entries from queue offset ``start`` on whose records the log has, or should have.

    Entries that lead before the log's start have expired and are skipped. An entry that leads to no valid record of its
    queue is logged, and yielded without a record.
    """
    log = RecordsByOffset(folder)
    for part in slices:
        for queue_offsets, entries in read_entries(folder, part):
            offsets, sizes, tags_codes = (entries[name].astype(np.int64) for name in _FIELDS)
            found = QueuedEntries(part.topic, part.queue_id, queue_offsets, offsets, sizes, tags_codes, None)
            kept = np.flatnonzero((queue_offsets >= start) & (found.physical_offsets >= log.begin))
            yield from _with_records(folder, log, part, found.taken(kept))


def _with_records(
    folder: StoreFolder, log: RecordsByOffset, part: QueueSlice, entries: QueuedEntries
) -> Iterator[QueuedEntries]:
    missing = np.ones(len(entries), np.bool_)
    for records, numbers in log.groups(entries.physical_offsets, entries.sizes):
        own = _of_queue(RecordValues(records, folder.root), entries, numbers)
        if len(own):
            missing[numbers[own]] = False
            values = RecordValues(_records(records, own), folder.root)
            yield replace(entries.taken(numbers[own]), values=values)
    if missing.any():
        logger.warning(
            "%s: %d entries from queue offset %d on lead to no readable record of their queue",
            folder.name_of(part.file.path),
            missing.sum(),
            entries.queue_offsets[missing.argmax()],
        )
        yield entries.taken(np.flatnonzero(missing))


def _records(records: Records, chosen: Positions) -> Records:
    return records if len(chosen) == len(records) else Records(records.base, records.data, records.starts[chosen])


def _of_queue(values: RecordValues, entries: QueuedEntries, numbers: Positions) -> Positions:
    """Return the indexes of the records that match queue and queue offset of their entry."""
    records = values.records
    mask = (records.field("queue_id") == entries.queue_id) & (
        records.field("queue_offset") == entries.queue_offsets[numbers]
    )
    same_topic = pc.equal(values.column("topic"), entries.topic).to_numpy(zero_copy_only=False)
    return np.flatnonzero(mask & same_topic)
