"""Facts of a report, without Spark and in bounded memory.

Most come from one pass over the messages. A second one over retries and dead letters reads their properties, by their
queues where these are complete. Lag is read from the broker's tables. What is counted is defined in ``sql/facts.py``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.arrow_columns import number_array
from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.queue_files import queue_end
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.charts import class_of
from rocketbroker.analytics.report.facts import StoreFacts, TopKeys
from rocketbroker.analytics.sql.facts import DELAYS, KEYS, QUEUES, RETRIED, SIZES, TRAFFIC, GroupedSums, in_ms
from rocketbroker.analytics.tables.table_reader import read_table
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

_QUEUE: Final = ("broker", "topic", "queue_id")
_COLUMNS: Final = (*_QUEUE, "queue_offset", "store_timestamp", "born_timestamp", "keys", "size")
_RETRIED_COLUMNS: Final = ("topic", "store_timestamp", "born_timestamp", "reconsume_times", "properties")
# Distinct keys counted at a time; the most frequent ones are shown.
_KEYS_COUNTED: Final = 1_000_000
_KEYS_SHOWN: Final = 50
_CONFIG: Final = "config"
_NO_ORIGIN: Final = "unknown"

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
    retries, dead_letters = _retried_facts(roots, selection, pc.unique(queues.column("topic")).to_pylist())
    return StoreFacts(
        stores=tuple((root.broker, root.shown) for root in roots),
        asked=asked,
        first_ms=min(counts.times, default=None),
        last_ms=max(counts.times, default=None),
        keys_missed=counts.keys.missed,
        traffic=counts.traffic.result(),
        sizes=counts.sizes.result(),
        keys=counts.keys.result(_KEYS_SHOWN),
        queues=queues,
        delays=counts.delays.result(),
        retries=retries,
        dead_letters=dead_letters,
        lag=_lag_facts(roots, queues) if selection.is_all else facts.LAG.empty_table(),
        corrupt=pa.Table.from_pylist([asdict(found) for found in report.ranges], facts.CORRUPT),
    )


class _Counts:
    """Sums over all batches."""

    def __init__(self) -> None:
        #: The first and the last store time.
        self.times: tuple[int, ...] = ()
        self.traffic = GroupedSums(facts.TRAFFIC, TRAFFIC.how)
        self.sizes = GroupedSums(facts.SIZES, {"messages": "sum", "total": "sum", "most": "max"})
        self.keys = TopKeys(facts.KEYS, _KEYS_COUNTED)
        self.queues = GroupedSums(facts.QUEUES, QUEUES.how)
        self.delays = GroupedSums(facts.DELAYS, {"messages": "sum", "most": "max"})

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the messages of a batch with the columns ``_COLUMNS``."""
        seen = pc.min_max(in_ms(batch.column("store_timestamp"))).as_py()
        if seen["min"] is not None:
            times = (*self.times, seen["min"], seen["max"])
            self.times = min(times), max(times)
        self.traffic.add(TRAFFIC.rows_of(batch))
        self.sizes.add(_classed(SIZES.rows_of(batch), "size", "size_class"))
        self.queues.add(QUEUES.rows_of(batch))
        keys = KEYS.rows_of(batch)
        self.keys.add(keys.filter(pc.is_valid(keys.column("key"))))
        self.delays.add(_classed(DELAYS.rows_of(batch), "took", "delay_class"))


def _classed(rows: pa.Table, name: str, class_name: str) -> pa.Table:
    """Return the rows with a value, with its class, and the value as ``total`` and ``most`` of its class."""
    rows = rows.filter(pc.is_valid(rows.column(name)))
    values = rows.column(name).cast(pa.int64())
    classes = number_array(class_of(values.to_numpy()))
    return rows.append_column(class_name, classes).append_column("total", values).append_column("most", values)


def _retried_facts(
    stores: Sequence[StoreRoot], selection: Selection, topics: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """Count the selected retries and dead letters in ``topics``, as ``facts.RETRIES`` and ``facts.DEAD_LETTERS``."""
    retries = GroupedSums(facts.RETRIES, {"messages": "sum", "most": "max"})
    dead_letters = GroupedSums(facts.DEAD_LETTERS, {"messages": "sum", "first_ms": "min", "last_ms": "max"})
    names = {topic for topic in topics if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))}
    chosen = selection.and_(Selection(topics=names))
    for batch in read_store(stores, _RETRIED_COLUMNS, selection=chosen) if names else ():
        found = RETRIED.rows_of(batch)
        stored = found.column("stored_ms")
        rows = pa.table(
            {
                "group": found.column("group_name"),
                "origin": pc.coalesce(found.column("origin_topic"), _NO_ORIGIN),
                "attempt": found.column("reconsume_times"),
                "age": found.column("age"),
                "messages": number_array(np.ones(found.num_rows, np.int64)),
                "first_ms": stored,
                "last_ms": stored,
            }
        )
        dead_letters.add(rows.filter(found.column("is_dead")))
        retries.add(_classed(rows.filter(pc.invert(found.column("is_dead"))), "age", "delay_class"))
    return retries.result(), dead_letters.result()


def _lag_facts(stores: Sequence[StoreRoot], queues: pa.Table) -> pa.Table:
    """Read the lag of the groups of ``stores`` as ``facts.LAG``, the largest first.

    A queue ends after its last entry, as for ``jobs.snapshots``: the log may still have messages with higher offsets,
    of a topic that was deleted and created again. If the store lacks a queue, its end comes from the log. A queue
    that is in neither is left out. ``queues`` has all queues, as ``facts.QUEUES``.
    """
    rows = [row for root in stores for row in _committed(root)]
    committed = pa.Table.from_pylist(rows, facts.LAG).drop_columns(["lag"]).rename_columns({"end": "last_entry"})
    joined = committed.join(queues.select([*_QUEUE, "end"]), list(_QUEUE), join_type="left outer")
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
    for batch in read_table([root], "consumer_offsets", [*_QUEUE, "group_name", "consumer_offset"]):
        for row in batch.to_pylist():
            if row["consumer_offset"] is not None:
                end = queue_end(folder, row["topic"], row["queue_id"])
                yield {**row, "group": row["group_name"] or "", "committed": row["consumer_offset"], "end": end}
