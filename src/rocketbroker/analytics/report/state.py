"""Facts of a report that need more than one pass over the messages: dead letters and lag."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.retry_topics import POP_RETRY_SEPARATOR_V1, retry_group
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.queues.queue_end import queue_end
from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.sums import GroupedSums
from rocketbroker.analytics.tables.table_reader import read_table
from rocketbroker.codec.message.message_const import PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX

QUEUE: Final = ("broker", "topic", "queue_id")
_CONFIG: Final = "config"
_NO_ORIGIN: Final = "unknown"


def dead_letter_facts(stores: Sequence[StoreRoot], selection: Selection, topics: Sequence[str]) -> pa.Table:
    """Count the selected dead letters of ``stores`` in ``topics``, as ``facts.DEAD_LETTERS``."""
    dead = frozenset(topic for topic in topics if topic.startswith(DLQ_GROUP_TOPIC_PREFIX))
    sums = GroupedSums(facts.DEAD_LETTERS, {"messages": "sum", "first_ms": "min", "last_ms": "max"})
    chosen = selection.and_(Selection(topics=dead))
    for batch in read_store(stores, ["topic", "store_timestamp", "properties"], selection=chosen) if dead else ():
        stored = batch.column("store_timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        groups = pc.utf8_slice_codeunits(batch.column("topic"), len(DLQ_GROUP_TOPIC_PREFIX))
        columns = [groups, _origins(batch.column("properties")), np.ones(batch.num_rows, np.int64), stored, stored]
        sums.add(pa.table(columns, facts.DEAD_LETTERS.names))
    return sums.result()


def by_group(stores: Sequence[StoreRoot], selection: Selection, retries: pa.Table) -> pa.Table:
    """Return ``facts.RETRIES`` from sums by retry topic instead of group.

    Where the name of a topic does not identify the group, one of its messages is read.
    """
    topics = pc.unique(retries.column("group")).to_pylist()
    found = {topic: retry_group(topic, {}) for topic in topics}
    unclear = {topic for topic, group in found.items() if POP_RETRY_SEPARATOR_V1 in group}
    found |= _groups_by_messages(stores, selection, unclear)
    sums = GroupedSums(facts.RETRIES, {"messages": "sum", "most": "max"})
    groups = pa.array([found[topic] for topic in retries.column("group").to_pylist()], pa.string())
    sums.add(retries.set_column(retries.schema.get_field_index("group"), "group", groups))
    return sums.result()


def _groups_by_messages(stores: Sequence[StoreRoot], selection: Selection, topics: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    chosen = selection.and_(Selection(topics=frozenset(topics)))
    for batch in read_store(stores, ["topic", "properties"], selection=chosen) if topics else ():
        names = batch.column("topic")
        for topic in set(pc.unique(names).to_pylist()) - set(found):
            first = pc.index(names, topic).as_py()
            found[topic] = retry_group(topic, dict(batch.column("properties")[first].as_py()))
        if len(found) == len(topics):
            break
    return found


def _origins(properties: pa.MapArray) -> pa.Array:
    """Return the original topics of dead letters."""
    named = (pc.map_lookup(properties, name, "last") for name in (PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC))
    return pc.coalesce(*named, _NO_ORIGIN)


def lag_facts(stores: Sequence[StoreRoot], queues: pa.Table) -> pa.Table:
    """Read the lag of the groups of ``stores`` as ``facts.LAG``, the largest first.

    A queue ends after its last entry, as for ``jobs.snapshots``: the log may still have messages with higher offsets,
    of a topic that was deleted and created again. If the store lacks a queue, its end comes from the log. A queue
    that is in neither is left out. ``queues`` has all queues, as ``facts.QUEUES``.
    """
    rows = [row for root in stores for row in _committed(root)]
    committed = pa.Table.from_pylist(rows, facts.LAG).drop_columns(["lag"]).rename_columns({"end": "last_entry"})
    joined = committed.join(queues.select([*QUEUE, "end"]), list(QUEUE), join_type="left outer")
    ends = pc.coalesce(joined.column("last_entry"), joined.column("end"))
    lag = pc.max_element_wise(pc.subtract(ends, joined.column("committed")), 0)
    known = joined.drop_columns(["end"]).append_column("end", ends).append_column("lag", lag).filter(pc.is_valid(ends))
    found = known.select(facts.LAG.names).cast(facts.LAG)
    order = [("lag", "descending"), *((name, "ascending") for name in ("group", "topic", "broker", "queue_id"))]
    return found.sort_by(order)


def _committed(root: StoreRoot) -> Iterator[dict[str, Any]]:
    folder = open_folder(root)
    if not folder.is_folder(_CONFIG):
        return  # only a commit log
    for batch in read_table([root], "consumer_offsets", [*QUEUE, "group_name", "consumer_offset"]):
        for row in batch.to_pylist():
            if row["consumer_offset"] is not None:
                end = queue_end(folder, row["topic"], row["queue_id"])
                yield {**row, "group": row["group_name"] or "", "committed": row["consumer_offset"], "end": end}
