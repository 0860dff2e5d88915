"""The table ``delayed``: messages that wait in system topics until they are due.

Delay levels: entries of SCHEDULE_TOPIC_XXXX after ``config/delayOffset.json``. Timer messages: those of
rmq_sys_wheel_timer not yet delivered by ``config/timerProgress.json``, or ``config/timercheck`` of Apache RocketMQ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.queues.queue_files import queue_slices, queues
from rocketbroker.analytics.tables.config_file import load_config_file
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.pending_timers import pending_timers
from rocketbroker.analytics.tables.queued_columns import Maker, queued_columns
from rocketbroker.analytics.tables.queued_entries import QueuedEntries, queued_entries
from rocketbroker.analytics.tables.record_values import MOST_QUEUES, RecordValues
from rocketbroker.analytics.tables.root_folder import queues_folder, root_folder
from rocketbroker.analytics.tables.table import BROKER, TIME, Rows, Table, TableOptions, constant, field, select_by
from rocketbroker.codec.message.message_const import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_OUT_MS,
)
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.codec.storefile.timer_slots import TIMER_TOPIC


@dataclass(frozen=True, slots=True)
class DelayedPart:
    """A queue of ``topic``, from queue offset ``start`` on."""

    store: StoreRoot
    topic: str
    queue_id: int
    start: int = 0


class DelayedTable(Table):
    """One row per waiting message."""

    name = "delayed"
    comment = "a message that waits till it is due: for a delay level, or as a timer message"
    schema = pa.schema(
        [
            BROKER,
            field("kind", pa.string(), "level or timer"),
            field("delay_level", pa.int32(), "delay level, null for a timer message"),
            field("due_timestamp", TIME, "not delivered before; a timer message up to a slot of the timer later"),
            field("real_topic", pa.string(), "topic it is for (REAL_TOPIC)"),
            field("real_queue_id", pa.int32(), "queue it is for (REAL_QID)"),
            field("origin_topic", pa.string(), "topic it was first sent to, where it is tried again (RETRY_TOPIC)"),
            field("cancelled", pa.bool_(), "whether a timer message is recalled: it will not be delivered"),
            field("topic", pa.string(), "topic in which it waits"),
            field("queue_id", pa.int32(), "queue in which it waits"),
            field("queue_offset", pa.int64(), "number of the message in that queue"),
            field("physical_offset", pa.int64(), "byte offset of the record in the commit log"),
            field("store_timestamp", TIME, "when it was stored there"),
            field("born_timestamp", TIME, "when the producer made it, by the producer's clock"),
            field("reconsume_times", pa.int32(), "failed consumptions so far"),
            field("uniq_key", pa.string(), "unique message id (property UNIQ_KEY)"),
            field("keys", pa.string(), "keys, separated by blanks (property KEYS)"),
            field("tags", pa.string(), "property TAGS"),
            field("size", pa.int32(), "bytes of the whole record"),
        ]
    )
    selects = select_by("physical_offset", "store_timestamp", "keys", "uniq_key", "tags", topic="real_topic")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[DelayedPart]:
        """Return a part for each queue with waiting messages."""
        return [part for store in stores for part in _parts(queues_folder(store, self.name))]

    def read(self, part: DelayedPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the waiting messages of a queue; without its record, an entry has only the values from the queue."""
        folder = root_folder(part.store)
        rows = _timers(folder) if part.topic == TIMER_TOPIC else _of_level(folder, part)
        for each in rows:
            yield chosen(each, self.selects, selection, schema)


def _parts(folder: StoreFolder) -> Iterator[DelayedPart]:
    levels = [queue_id for topic, queue_id in queues(folder, CONSUME_QUEUE) if topic == RMQ_SYS_SCHEDULE_TOPIC]
    if levels:
        file = load_config_file(folder, "delayOffset.json", DelayOffsetSerializeWrapper)
        for queue_id in levels:
            yield DelayedPart(folder.root, RMQ_SYS_SCHEDULE_TOPIC, queue_id, file.offset_table.get(queue_id + 1, 0))
    if (TIMER_TOPIC, 0) in queues(folder, CONSUME_QUEUE):
        yield DelayedPart(folder.root, TIMER_TOPIC, 0)


def _of_level(folder: StoreFolder, part: DelayedPart) -> Iterator[Rows]:
    slices = queue_slices(folder, CONSUME_QUEUE, part.topic, part.queue_id)
    for entries in queued_entries(folder, slices, part.start):
        count = len(entries)
        own: dict[str, Maker] = {
            "kind": constant("level", pa.string(), count),
            "delay_level": constant(part.queue_id + 1, pa.int32(), count),
            "due_timestamp": partial(pa.array, entries.tags_codes),
            "cancelled": constant(False, pa.bool_(), count),
        }
        yield _rows(folder, entries, own)


def _timers(folder: StoreFolder) -> Iterator[Rows]:
    for entries, cancelled in pending_timers(folder):
        values = entries.values
        assert values is not None
        own: dict[str, Maker] = {
            "kind": constant("timer", pa.string(), len(entries)),
            "delay_level": constant(None, pa.int32(), len(entries)),
            "due_timestamp": partial(values.number, PROPERTY_TIMER_OUT_MS),
            "cancelled": partial(pa.array, cancelled),
        }
        yield _rows(folder, entries, own)


def _rows(folder: StoreFolder, entries: QueuedEntries, own: Mapping[str, Maker]) -> Rows:
    columns = queued_columns(DelayedTable.schema, folder.root.broker, entries, _OF_PROPERTIES)
    return Rows(len(entries), {**columns, **own})


_OF_PROPERTIES: Final[dict[str, Callable[[RecordValues], pa.Array]]] = {
    "real_topic": lambda values: values.property(PROPERTY_REAL_TOPIC),
    "real_queue_id": lambda values: values.number(PROPERTY_REAL_QUEUE_ID, MOST_QUEUES),
    "origin_topic": lambda values: values.property(PROPERTY_RETRY_TOPIC),
}
