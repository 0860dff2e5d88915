"""Entries of a queue with the records they point to, and records that their queues lack."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.arrow_columns import properties_text, property_values
from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_columns import message_batches
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.queue_files import QueueSlice, read_entries
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import walk_split
from rocketbroker.analytics.log.queue_proof import has_all_queues, shown_or_none
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.tables.table import Rows
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.record_columns import Records, ScatteredRecords
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.store_file import offset_files

_DIGITS: Final = r"^[0-9]{1,18}$"
_MOST: Final = 10**18 - 1
#: The highest queue number (int32).
MOST_QUEUES: Final = (1 << 31) - 1


class RecordValues:
    """Columns of ``records`` of one store."""

    def __init__(self, records: Records, root: StoreRoot) -> None:
        self.records = records
        self.root = root

    def column(self, name: str) -> pa.Array:
        """Return a column of the table ``messages``; times in ms since 1970."""
        kind = pa.int64() if name.endswith("_timestamp") else MESSAGE_SCHEMA.field(name).type
        # Records may be from several files; no column here depends on the file.
        nowhere = LogFile(self.root, "", 0, 0, 0)
        (batch,) = message_batches(self.records, nowhere, pa.schema([pa.field(name, kind)]), DecodeReport())
        return batch.column(0)

    def property(self, name: str) -> pa.Array:
        """Return the value of a property in each record; null where it is missing."""
        return property_values(self._properties, name)

    def number(self, name: str, most: int = _MOST) -> pa.Array:
        """Return a property as int64; null where it is missing, or not a number from 0 to ``most``."""
        values = self.property(name)
        numbers = pc.if_else(pc.match_substring_regex(values, _DIGITS), values, None).cast(pa.int64())
        return pc.if_else(pc.less_equal(numbers, most), numbers, None)

    @cached_property
    def _properties(self) -> pa.Array:
        return properties_text(self.records)


_FOLDER: Final = "commitlog"
# Largest gap between records that are read together, and the size of a group in bytes.
_NEAR: Final = 64 << 10
_AT_ONCE: Final = 16 << 20


class RecordsByOffset:
    """Reader of the records of a store by their offsets."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._files = offset_files(folder.files(_FOLDER), _FOLDER)

    @property
    def begin(self) -> int:
        """Start offset of the log, 0 without files."""
        return self._files[0].base if self._files else 0

    def groups(self, offsets: Positions, sizes: Positions) -> Iterator[tuple[Records, Positions]]:
        """Yield the valid records at ``offsets`` that are ``sizes`` bytes long, by offset, with their indexes.

        Damaged and missing records are left out. A group is up to 16 MiB, or one record.
        """
        order = np.argsort(offsets, kind="stable")
        offsets, sizes = offsets[order], sizes[order]
        for file in self._files:
            low, high = np.searchsorted(offsets, (file.base, file.base + file.size))
            inside = (offsets[low:high] <= file.base + file.size - sizes[low:high]) & (
                sizes[low:high] >= MIN_RECORD_SIZE
            )
            numbers = low + np.flatnonzero(inside)
            if len(numbers):
                with opened(self._folder, file.path, "commit-log file") as source:
                    reader = ScatteredRecords(source, file.base, _NEAR, _AT_ONCE)
                    numbers = numbers[reader.claimed(offsets[numbers] - file.base, sizes[numbers])]
                    for group in reader.groups(offsets[numbers] - file.base, sizes[numbers]):
                        chosen = numbers[group]
                        records, sound = reader.read(offsets[chosen] - file.base, sizes[chosen])
                        yield Records(0, records.data, records.starts[sound]), order[chosen[sound]]


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


# Records that may be missing in their queues, for tables of queued messages.
#
# After a power loss, or in a copy of a store in use, queues may end before the log does. From the first offset that
# they are not proven to cover, the log itself is walked.

#: Larger than any physical offset.
EVERYWHERE: Final = (1 << 63) - 1


def queued_to(folder: StoreFolder) -> int:
    """Return the physical offset up to which queues are complete: :data:`EVERYWHERE`, or less with a warning."""
    if has_all_queues(folder) or not folder.is_folder("commitlog"):
        return EVERYWHERE
    files = [file for file in commit_log_files(folder.root) if file.data_end]
    if not files:
        return EVERYWHERE
    begin, end = files[0].base, files[-1].base + files[-1].data_end
    shown = shown_or_none(folder, files, begin)
    low = begin if shown is None else shown
    if low < end:
        text = (
            "%s was not stopped cleanly, and its queues are not proven complete: the log is read from offset %d to %d"
        )
        logger.warning(text, folder.root.shown, low, end)
    return low


def log_splits(folder: StoreFolder, low: int, split_size: int) -> list[Split]:
    """Return the splits of the log from the physical offset ``low`` on."""
    wanted = Selection(physical_offsets=(low, EVERYWHERE)) if low < EVERYWHERE else None
    return plan_splits([folder.root], split_size, wanted) if wanted else []


def logged_entries(split: Split, prefix: str) -> Iterator[QueuedEntries]:
    """Yield the entries that records of topics with ``prefix`` have, or should have; tag codes are 0."""
    for records in walk_split(split, DecodeReport()):
        topics = RecordValues(records, split.file.root).column("topic")
        queue_ids = records.field("queue_id").astype(np.int64)
        for topic in pc.unique(topics.filter(pc.starts_with(topics, prefix))).to_pylist():
            of_topic = pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            for queue_id in np.unique(queue_ids[of_topic]).tolist():
                own = records.starts[of_topic & (queue_ids == queue_id)]
                yield _entries(topic, queue_id, Records(records.base, records.data, own), split)


def _entries(topic: str, queue_id: int, records: Records, split: Split) -> QueuedEntries:
    queue_offsets, offsets = (records.field(name).astype(np.int64) for name in ("queue_offset", "physical_offset"))
    sizes, tags_codes = records.total_size.astype(np.int64), np.zeros(len(records), np.int64)
    values = RecordValues(records, split.file.root)
    return QueuedEntries(topic, queue_id, queue_offsets, offsets, sizes, tags_codes, values)
