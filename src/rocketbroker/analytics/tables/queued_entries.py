"""Entries of a queue with the records they point to, for tables of queued messages."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.queues.queue_files import QueueSlice, read_entries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.analytics.tables.records_by_offset import RecordsByOffset
from rocketbroker.analytics.tables.table import Rows
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.record_columns import Records

_FIELDS: Final = ("commit_log_offset", "size", "tags_code")

logger = logging.getLogger(__name__)

#: By column, how to make it from records.
Makers = Mapping[str, Callable[[RecordValues], pa.Array]]


@dataclass(frozen=True, slots=True)
class QueuedEntries:
    """Entries of one queue, columns of shape (n,), and their records; ``None`` if these are unreadable."""

    topic: str
    queue_id: int
    queue_offsets: Positions
    physical_offsets: Positions
    sizes: Positions
    tags_codes: Positions
    values: RecordValues | None

    def __len__(self) -> int:
        return len(self.queue_offsets)

    @property
    def known_values(self) -> RecordValues:
        """The values of records that are known to be readable."""
        assert self.values is not None
        return self.values

    def taken(self, numbers: Positions) -> "QueuedEntries":
        """Return the entries with these indexes."""
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
    """Yield the entries from queue offset ``start`` on, except expired ones, which point before the log's start.

    An entry that points to no valid record of its queue is logged, and yielded without a record.
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
            "%s: %d entries from queue offset %d on point to no readable record of their queue",
            folder.name_of(part.file.path),
            missing.sum(),
            entries.queue_offsets[missing.argmax()],
        )
        yield entries.taken(np.flatnonzero(missing))


def queued_rows(
    schema: pa.Schema, broker: str, entries: QueuedEntries, own: Mapping[str, Any], special: Makers
) -> Rows:
    """Return the rows of a table of queued messages. Without records, columns that are not in the queue are null.

    ``own`` has columns that are not from the messages, as for ``Rows``; ``special`` makes columns that ``messages``
    lacks from records.
    """
    known = {
        "broker": broker,
        "topic": entries.topic,
        "queue_id": entries.queue_id,
        "queue_offset": entries.queue_offsets,
        "physical_offset": entries.physical_offsets,
        "size": entries.sizes,
        **own,
    }
    missing = [column for column in schema if column.name not in known]
    return Rows(len(entries), known | {column.name: _of_records(column, entries, special) for column in missing})


def _of_records(column: pa.Field, entries: QueuedEntries, special: Makers) -> Callable[[], pa.Array]:
    if entries.values is None:
        is_time = pa.types.is_timestamp(column.type)
        return partial(pa.nulls, len(entries), pa.int64() if is_time else column.type)
    if column.name in special:
        return partial(special[column.name], entries.values)
    return partial(entries.values.column, column.name)


def _records(records: Records, chosen: Positions) -> Records:
    return records if len(chosen) == len(records) else Records(records.base, records.data, records.starts[chosen])


def _of_queue(values: RecordValues, entries: QueuedEntries, numbers: Positions) -> Positions:
    """Return the indexes of the records that match queue and queue offset of their entry."""
    records = values.records
    mask = records.field("queue_id") == entries.queue_id
    mask &= records.field("queue_offset") == entries.queue_offsets[numbers]
    same_topic = pc.equal(values.column("topic"), entries.topic).to_numpy(zero_copy_only=False)
    return np.flatnonzero(mask & same_topic)
