"""The table ``delayed``: messages that wait in system topics until they are due.

Delayed messages are the entries of SCHEDULE_TOPIC_XXXX after ``config/delayOffset.json``. Timer messages are those of
rmq_sys_wheel_timer that ``config/timerProgress.json``, or ``config/timercheck`` of Apache RocketMQ, does not count as
delivered.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.message_schema import TIME, field, message_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.queue_files import queue_slices, queues
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.config_tables import load_config_file
from rocketbroker.analytics.tables.queued_messages import (
    MOST_QUEUES,
    Makers,
    QueuedEntries,
    RecordValues,
    queued_entries,
    queued_rows,
)
from rocketbroker.analytics.tables.table import (
    BROKER,
    Rows,
    Table,
    TableOptions,
    chosen,
    queues_folder,
    root_folder,
    select_by,
)
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_const import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.storefile.checkpoint_layout import decode_timer_checkpoint
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.codec.storefile.timer_slots import TIMER_TOPIC, Delivered, TimerProgressFile
from rocketbroker.common.errors import CodecError

_OURS: Final = "timerProgress.json"
_OF_ROCKETMQ: Final = "timercheck"
# Larger than any time: messages keep their own slot.
_NO_WINDOW: Final = 1 << 62

#: Key by which a message is cancelled: its slot, real topic and unique id.
CancelKey = tuple[int | None, str | None, str | None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TimerState:
    """Progress of delivery, and how slots follow from messages (``codec/storefile/timer_slots.py``)."""

    delivered: Delivered = ()
    precision_ms: int = 1
    roll_window_ms: int = _NO_WINDOW


def pending_timers(folder: StoreFolder) -> Iterator[tuple[QueuedEntries, list[bool]]]:
    """Yield waiting timer messages, each with true if another one cancels it.

    The queue is read twice, since the cancelling message is stored after the cancelled one.
    """
    state = timer_state(folder)
    cancels = {key for entries in _waiting(folder, state) for key in _cancels(entries)}
    for entries in _waiting(folder, state):
        ordinary = entries.taken(np.flatnonzero(~_is_cancel(entries)))
        if len(ordinary):
            yield ordinary, [key in cancels for key in _keys(ordinary)] if cancels else [False] * len(ordinary)


def timer_state(folder: StoreFolder) -> TimerState:
    """Read the progress that the last broker saved.

    Without it all messages of the timer's queue count as waiting, as they do for a broker; a warning is logged.
    """
    names = folder.files("config")
    if _OURS in names or f"{_OURS}.bak" in names:
        file = load_config_file(folder, _OURS, TimerProgressFile)
        return TimerState(tuple(file.delivered), max(file.precision_ms, 1), file.roll_window_ms or _NO_WINDOW)
    path = f"config/{_OF_ROCKETMQ}"
    data = folder.read_if_there(path)
    if data is None:
        logger.warning("%s is missing; all timer messages of the store count as waiting", folder.name_of(path))
        return TimerState()
    try:
        found = decode_timer_checkpoint(data)
    except CodecError as error:
        logger.warning("%s: %s; all timer messages of the store count as waiting", folder.name_of(path), error)
        return TimerState()
    # It is unknown when Apache RocketMQ stored messages again.
    return TimerState(((found.last_read_time_ms, found.last_timer_queue_offset),))


def slots_of(out_ms: Positions, stored_ms: Positions, state: TimerState) -> Positions:
    """Return the slots of many messages, as ``slot_of`` of codec/storefile/timer_slots.py; in ms, shape (n,)."""
    precision, window = state.precision_ms, state.roll_window_ms
    enqueued = stored_ms // precision * precision
    ahead = out_ms - enqueued
    way = np.where(ahead - window < window // 3, window // 2, window) // precision * precision
    found: Positions = np.where(ahead < window, out_ms, enqueued + way)
    return found


def _waiting(folder: StoreFolder, state: TimerState) -> Iterator[QueuedEntries]:
    """Yield the undelivered messages of the timer's queue, including those that cancel others."""
    for entries in queued_entries(folder, queue_slices(folder, CONSUME_QUEUE, TIMER_TOPIC, 0)):
        if entries.values is None:
            continue  # already logged; their due time is in their records
        usable = _usable(folder, entries, entries.values)
        if len(waiting := _not_delivered(usable, state)):
            yield usable.taken(waiting)


def _usable(folder: StoreFolder, entries: QueuedEntries, values: RecordValues) -> QueuedEntries:
    """Return the messages with a due time and a destination; a broker discards others."""
    valid = pc.and_(
        pc.is_valid(values.number(PROPERTY_TIMER_OUT_MS)), pc.is_valid(values.property(PROPERTY_REAL_TOPIC))
    )
    valid = pc.and_(valid, pc.is_valid(values.number(PROPERTY_REAL_QUEUE_ID, MOST_QUEUES)))
    usable = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    if len(usable) < len(entries):
        text = "%s: %d timer messages without due time or destination are left out"
        logger.warning(text, folder.name_of(f"{CONSUME_QUEUE}/{TIMER_TOPIC}/0"), len(entries) - len(usable))
    return entries.taken(usable)


def _not_delivered(entries: QueuedEntries, state: TimerState) -> Positions:
    out_ms, stored = entries.known_values.number(PROPERTY_TIMER_OUT_MS), entries.known_values.column("store_timestamp")
    slots = slots_of(out_ms.to_numpy(), stored.to_numpy(), state)
    waiting = np.ones(len(entries), np.bool_)
    for before_ms, before_offset in state.delivered:
        waiting &= (slots >= before_ms) | (entries.queue_offsets >= before_offset)
    return np.flatnonzero(waiting)


def _is_cancel(entries: QueuedEntries) -> NDArray[np.bool_]:
    names = entries.known_values.property(PROPERTY_TIMER_DEL_UNIQKEY)
    found: NDArray[np.bool_] = pc.is_valid(names).to_numpy(zero_copy_only=False)
    return found


def _keys(entries: QueuedEntries, name: str = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) -> Iterator[CancelKey]:
    values = entries.known_values
    columns = values.number(PROPERTY_TIMER_OUT_MS), values.property(PROPERTY_REAL_TOPIC), values.property(name)
    yield from zip(*(column.to_pylist() for column in columns), strict=True)


def _cancels(entries: QueuedEntries) -> Iterator[CancelKey]:
    """Yield the keys of cancelled messages; the topic may precede the unique id (appendTopicForTimerDeleteKey)."""
    cancelling = entries.taken(np.flatnonzero(_is_cancel(entries)))
    for due, topic, named in _keys(cancelling, PROPERTY_TIMER_DEL_UNIQKEY) if len(cancelling) else ():
        yield due, topic, (named or "").removeprefix(f"{topic}+")


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
