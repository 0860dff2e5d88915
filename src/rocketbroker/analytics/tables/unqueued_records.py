"""Records that may be missing in their queues, for tables of queued messages.

After a power loss, or in a copy of a store in use, queues may end before the log does. From the first offset that they
are not proven to cover, the log itself is walked.
"""

import logging
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.log.record_walk import walk_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.queues.queue_proof import has_all_queues, shown_or_none
from rocketbroker.analytics.tables.queued_entries import QueuedEntries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.codec.storefile.record_columns import Records

#: Larger than any physical offset.
EVERYWHERE: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


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
