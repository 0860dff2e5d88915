"""Facts of a report from one pass over the messages, without Spark and in bounded memory.

Dead letters and lag need more than one pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.columns.topics import (
    NOT_SENT_PREFIXES,
    NOT_SENT_TOPICS,
    POP_RETRY_SEPARATOR_V1,
    retry_group,
)
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.queue_files import queue_end
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.charts import class_of
from rocketbroker.analytics.report.facts import GroupedSums, StoreFacts, TopKeys
from rocketbroker.analytics.tables.table_reader import read_table
from rocketbroker.codec.message.message_const import KEY_SEPARATOR, PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

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


_MINUTE_MS: Final = 60_000
# Distinct keys counted at a time; the most frequent ones are shown.
_KEYS_COUNTED: Final = 1_000_000
_KEYS_SHOWN: Final = 50
_COLUMNS: Final = (*QUEUE, "queue_offset", "store_timestamp", "born_timestamp", "keys", "reconsume_times", "size")

#: Called with the number of messages read.
Progress = Callable[[int], None]


def collect_facts(
    stores: Stores,
    selection: Selection = EVERYTHING,
    *,
    asked: str = "",
    progress: Progress = lambda _: None,
) -> StoreFacts:
    """Return the current facts of ``stores`` about the messages of ``selection``, which ``asked`` states in words.

    Lag is read only without a selection, since it needs the ends of queues.
    """
    roots, report, counts = store_roots(stores), DecodeReport(), _Counts()
    for batch in read_store(roots, _COLUMNS, selection=selection, report=report):
        counts.add(batch)
        progress(report.messages)
    queues = counts.queues.result()
    return StoreFacts(
        stores=tuple((root.broker, root.shown) for root in roots),
        asked=asked,
        first_ms=counts.first_ms,
        last_ms=counts.last_ms,
        keys_missed=counts.keys.missed,
        traffic=counts.traffic.result(),
        sizes=counts.sizes.result(),
        keys=counts.keys.result(_KEYS_SHOWN),
        queues=queues,
        delays=counts.delays.result(),
        retries=by_group(roots, selection, counts.retries.result()),
        dead_letters=dead_letter_facts(roots, selection, pc.unique(queues.column("topic")).to_pylist()),
        lag=lag_facts(roots, queues) if selection.is_all else facts.LAG.empty_table(),
        corrupt=pa.Table.from_pylist([asdict(found) for found in report.ranges], facts.CORRUPT),
    )


class _Counts:
    """Sums over all batches."""

    def __init__(self) -> None:
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.traffic = GroupedSums(facts.TRAFFIC, {"messages": "sum", "bytes": "sum"})
        self.sizes = GroupedSums(facts.SIZES, {"messages": "sum", "total": "sum", "most": "max"})
        self.keys = TopKeys(facts.KEYS, _KEYS_COUNTED)
        self.queues = GroupedSums(facts.QUEUES, {"messages": "sum", "bytes": "sum", "end": "max"})
        self.delays = GroupedSums(facts.DELAYS, {"messages": "sum", "most": "max"})
        self.retries = GroupedSums(facts.RETRIES, {"messages": "sum", "most": "max"})

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the messages of a batch with the columns ``_COLUMNS``."""
        column = {name: batch.column(name) for name in _COLUMNS}
        ones, sizes = pa.array(np.ones(batch.num_rows, np.int64)), column["size"].cast(pa.int64())
        stored = _millis(column["store_timestamp"])
        self._see_times(stored)
        base = {"topic": column["topic"], "messages": ones}
        self.traffic.add(pa.table(base | {"minute_ms": _minutes(stored), "bytes": sizes}))
        self.sizes.add(pa.table(base | {"size_class": _classes(sizes), "total": sizes, "most": sizes}))
        ends = pc.add(column["queue_offset"], 1)
        queue = {"broker": column["broker"], "queue_id": column["queue_id"].cast(pa.int64())}
        self.queues.add(pa.table(base | queue | {"bytes": sizes, "end": ends}))
        self._add_keys(column["topic"], column["keys"])
        self._add_delays(column, pc.subtract(stored, _millis(column["born_timestamp"])))

    def _see_times(self, stored: pa.Array) -> None:
        found = pc.min_max(stored).as_py()
        if found["min"] is not None:
            self.first_ms = found["min"] if self.first_ms is None else min(self.first_ms, found["min"])
            self.last_ms = found["max"] if self.last_ms is None else max(self.last_ms, found["max"])

    def _add_keys(self, topics: pa.Array, keys: pa.Array) -> None:
        parts = pc.split_pattern(keys, KEY_SEPARATOR)
        row, key = pc.list_parent_indices(parts), pc.list_flatten(parts)
        table = pa.table({"row": row, "key": key}).filter(pc.not_equal(key, ""))
        if table.num_rows > pc.count_distinct(table.column("row")).as_py():
            table = table.group_by(["row", "key"]).aggregate([])  # a key repeated in a message counts once
        table = pa.table({"topic": topics.take(table.column("row")), "key": table.column("key")})
        self.keys.add(table.append_column("messages", pa.array(np.ones(table.num_rows, np.int64))))

    def _add_delays(self, column: dict[str, pa.Array], delays: pa.Array) -> None:
        rows = pa.table(
            {
                "topic": column["topic"],
                "attempt": column["reconsume_times"].cast(pa.int64()),
                "delay_class": _classes(pc.fill_null(delays, 0)),
                "messages": pa.array(np.ones(len(delays), np.int64)),
                "most": delays,
            }
        ).filter(pc.is_valid(delays))
        # The age of a dead letter only shows how long its group retried.
        is_first = pc.invert(_is_not_sent(rows.column("topic")))
        self.delays.add(rows.filter(is_first).drop_columns(["attempt"]))
        is_retry = pc.starts_with(rows.column("topic"), RETRY_GROUP_TOPIC_PREFIX)
        # ``by_group`` replaces the topic by its group.
        self.retries.add(rows.filter(is_retry).rename_columns({"topic": "group"}))


def _millis(times: pa.Array) -> pa.Array:
    """Return timestamps as ms since 1970; null stays null."""
    return times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())


def _is_not_sent(topics: pa.ChunkedArray) -> pa.ChunkedArray:
    found = pc.is_in(topics, pa.array(sorted(NOT_SENT_TOPICS)))
    for prefix in NOT_SENT_PREFIXES:
        found = pc.or_(found, pc.starts_with(topics, prefix))
    return found


def _minutes(stored: pa.Array) -> pa.Array:
    """Return the starts of the minutes of times; before 1970, integer division alone would return the next one."""
    below = pc.if_else(pc.less(stored, 0), _MINUTE_MS - 1, 0)
    return pc.multiply(pc.divide(pc.subtract(stored, below), _MINUTE_MS), _MINUTE_MS)


def _classes(values: pa.Array) -> pa.Array:
    return pa.array(class_of(values.to_numpy()))
