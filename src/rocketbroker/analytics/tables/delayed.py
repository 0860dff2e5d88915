"""The table ``delayed``: messages that wait in system topics until they are due.

Delayed messages are the entries of SCHEDULE_TOPIC_XXXX after ``config/delayOffset.json``. Timer messages are those of
rmq_sys_wheel_timer that ``config/timerProgress.json``, or ``config/timercheck`` of Apache RocketMQ, does not count as
delivered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from rocketbroker.analytics.columns.message_schema import TIME, field, message_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.queues.queue_files import queue_slices, queues
from rocketbroker.analytics.tables.config_file import load_config_file
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.pending_timers import pending_timers
from rocketbroker.analytics.tables.queued_entries import Makers, QueuedEntries, queued_entries, queued_rows
from rocketbroker.analytics.tables.record_values import MOST_QUEUES
from rocketbroker.analytics.tables.root_folder import queues_folder, root_folder
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, select_by
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
    comment = "a delayed message or timer message that is not delivered yet"
    schema = pa.schema(
        [
            BROKER,
            field("kind", pa.string(), "level or timer"),
            field("delay_level", pa.int32(), "delay level, null for a timer message"),
            field("due_timestamp", TIME, "earliest delivery; a timer message may be up to one timer slot later"),
            field("real_topic", pa.string(), "target topic (REAL_TOPIC)"),
            field("real_queue_id", pa.int32(), "target queue (REAL_QID)"),
            field("origin_topic", pa.string(), "for a retry, the original topic (RETRY_TOPIC)"),
            field("cancelled", pa.bool_(), "true for a recalled timer message, which will not be delivered"),
            field("topic", pa.string(), "system topic in which it waits"),
            *message_fields("queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp"),
            *message_fields("reconsume_times", "uniq_key", "keys", "tags", "size"),
        ]
    )
    selects = select_by("physical_offset", "store_timestamp", "keys", "uniq_key", "tags", topic="real_topic")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[DelayedPart]:
        """Return a part for each queue with waiting messages."""
        return [part for store in stores for part in _parts(queues_folder(store, self.name))]

    def read(self, part: DelayedPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the waiting messages of a queue; an entry without a record has only the values from the queue."""
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
        level, due = part.queue_id + 1, entries.tags_codes
        own = {"kind": "level", "delay_level": level, "due_timestamp": due, "cancelled": False}
        yield _rows(folder, entries, own)


def _timers(folder: StoreFolder) -> Iterator[Rows]:
    for entries, cancelled in pending_timers(folder):
        due = partial(entries.known_values.number, PROPERTY_TIMER_OUT_MS)
        own = {"kind": "timer", "delay_level": None, "due_timestamp": due, "cancelled": cancelled}
        yield _rows(folder, entries, own)


def _rows(folder: StoreFolder, entries: QueuedEntries, own: Mapping[str, Any]) -> Rows:
    return queued_rows(DelayedTable.schema, folder.root.broker, entries, own, _OF_PROPERTIES)


_OF_PROPERTIES: Final[Makers] = {
    "real_topic": lambda values: values.property(PROPERTY_REAL_TOPIC),
    "real_queue_id": lambda values: values.number(PROPERTY_REAL_QUEUE_ID, MOST_QUEUES),
    "origin_topic": lambda values: values.property(PROPERTY_RETRY_TOPIC),
}
