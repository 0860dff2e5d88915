"""Facts of a report that need more than one pass over all messages: dead letters, and what is not consumed yet."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.message_reader import read_store
from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.sums import GroupedSums
from rocketbroker.analytics.selection import Selection
from rocketbroker.analytics.store_root import StoreRoot
from rocketbroker.codec.message.message_const import PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import body_from
from rocketbroker.codec.storefile.config_json import loads_config
from rocketbroker.common.errors import CodecError, StoreError

_QUEUE: Final = ("broker", "topic", "queue_id")
_OFFSETS: Final = "config/consumerOffset.json"
_NO_ORIGIN: Final = "unknown"


def dead_letter_facts(stores: Sequence[StoreRoot], selection: Selection, topics: Sequence[str]) -> pa.Table:
    """Dead letters of ``stores`` that are selected, as ``facts.DEAD_LETTERS``.

    Args:
        topics: those that the selected messages are stored under.
    """
    dead = frozenset(topic for topic in topics if topic.startswith(DLQ_GROUP_TOPIC_PREFIX))
    sums = GroupedSums(facts.DEAD_LETTERS, {"messages": "sum", "first_ms": "min", "last_ms": "max"})
    chosen = selection.and_(Selection(topics=dead))
    for batch in read_store(stores, ["topic", "store_timestamp", "properties"], selection=chosen) if dead else ():
        stored = batch.column("store_timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        rows = {
            "group": pc.utf8_slice_codeunits(batch.column("topic"), len(DLQ_GROUP_TOPIC_PREFIX)),
            "origin": _origins(batch.column("properties")),
            "messages": pa.array(np.ones(batch.num_rows, np.int64)),
            "first_ms": stored,
            "last_ms": stored,
        }
        sums.add(pa.table(rows))
    return sums.result()


def _origins(properties: pa.MapArray) -> pa.Array:
    """The topics that dead letters were sent to."""
    named = (pc.map_lookup(properties, name, "last") for name in (PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC))
    return pc.coalesce(*named, _NO_ORIGIN)


def lag_facts(stores: Sequence[StoreRoot], queues: pa.Table) -> pa.Table:
    """What the groups of ``stores`` have not consumed, as ``facts.LAG``, the most behind first.

    A queue of which the log has no message left is passed over: where it ends cannot be told.

    Args:
        queues: all queues, as ``facts.QUEUES``.

    Raises:
        StoreError: a file of offsets cannot be read.
    """
    rows = [row for root in stores for row in _committed(root)]
    committed = pa.Table.from_pylist(rows, facts.LAG).drop_columns(["end", "lag"])
    joined = committed.join(queues.select([*_QUEUE, "end"]), list(_QUEUE), join_type="inner")
    lag = pc.max_element_wise(pc.subtract(joined.column("end"), joined.column("committed")), 0)
    found = joined.append_column("lag", lag).select(facts.LAG.names).cast(facts.LAG)
    order = [("lag", "descending"), *((name, "ascending") for name in ("group", "topic", "broker", "queue_id"))]
    return found.sort_by(order)


def _committed(root: StoreRoot) -> Iterator[dict[str, Any]]:
    folder = open_folder(root)
    data = folder.read_if_there(_OFFSETS)
    if data is None:
        return
    try:
        file = body_from(loads_config(data), ConsumerOffsetSerializeWrapper)
    except CodecError as error:
        raise StoreError(
            f"{folder.name_of(_OFFSETS)} is damaged: {error}; its backup .bak may be put in its place"
        ) from error
    for name, offsets in file.offset_table.items():
        topic, _, group = name.partition("@")
        for queue_id, offset in offsets.items():
            yield {"broker": root.broker, "group": group, "topic": topic, "queue_id": queue_id, "committed": offset}
