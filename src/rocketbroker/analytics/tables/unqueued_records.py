"""Records of the log that may be missing in their queues, for tables of queued messages.

After a power loss, or in a copy of a store in use, a queue may have got less far than the log. From the offset where
the queues of a store do not show that they have all of it, the log itself is walked.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.log.record_walk import walk_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.queues.queue_proof import all_queues, entries_of, has_all_queues, most_queues, shown_to
from rocketbroker.analytics.tables.queued_entries import QueuedEntries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.codec.storefile.record_columns import Records

#: Larger than any physical offset.
EVERYWHERE: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPart:
    """A split of the log with records that queues may lack."""

    split: Split


def queued_to(folder: StoreFolder) -> int:
    """Return the physical offset up to which queues are relied on: :data:`EVERYWHERE`, or less with a warning."""
    if has_all_queues(folder) or not folder.is_folder("commitlog"):
        return EVERYWHERE
    files = [file for file in commit_log_files(folder.root) if file.data_end]
    if not files:
        return EVERYWHERE
    low, end = _shown(folder, files), files[-1].base + files[-1].data_end
    if low < end:
        logger.warning(
            "%s was not stopped in order, and its queues do not show that they have all of the log: from offset %d to "
            "%d it is read itself",
            folder.root.shown,
            low,
            end,
        )
    return low


def _shown(folder: StoreFolder, files: Sequence[LogFile]) -> int:
    """Return the offset up to which queues are complete; the log's start if there are too many to read.

    A missing queue folder proves nothing: it may not have reached the disk.
    """
    queues, most = all_queues(folder), most_queues(folder)
    if len(queues) > most:
        logger.info("%s: its %d queues are not gone through, as up to %d are", folder.root.shown, len(queues), most)
        return files[0].base
    return shown_to(files, entries_of(folder, queues), files[0].base)


def log_parts(folder: StoreFolder, low: int, split_size: int) -> Iterator[LogPart]:
    """Yield the splits of the log from the physical offset ``low`` on."""
    if low < EVERYWHERE:
        wanted = Selection(physical_offsets=(low, EVERYWHERE))
        yield from (LogPart(split) for split in plan_splits([folder.root], split_size, wanted))


def logged_entries(part: LogPart, prefix: str) -> Iterator[QueuedEntries]:
    """Yield the entries that records of topics with ``prefix`` have, or should have; tag codes are 0."""
    for records in walk_split(part.split, DecodeReport()):
        topics = RecordValues(records, part.split.file.root).column("topic")
        queue_ids = records.field("queue_id").astype(np.int64)
        for topic in pc.unique(topics.filter(pc.starts_with(topics, prefix))).to_pylist():
            of_topic = pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            for queue_id in np.unique(queue_ids[of_topic]).tolist():
                own = records.starts[of_topic & (queue_ids == queue_id)]
                yield _entries(topic, queue_id, Records(records.base, records.data, own), part)


def _entries(topic: str, queue_id: int, records: Records, part: LogPart) -> QueuedEntries:
    queue_offsets, offsets = (records.field(name).astype(np.int64) for name in ("queue_offset", "physical_offset"))
    sizes, tags_codes = records.total_size.astype(np.int64), np.zeros(len(records), np.int64)
    values = RecordValues(records, part.split.file.root)
    return QueuedEntries(topic, queue_id, queue_offsets, offsets, sizes, tags_codes, values)
