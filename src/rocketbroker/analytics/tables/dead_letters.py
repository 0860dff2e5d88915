"""The table ``dead_letters``: messages that a consumer group gave up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.queues.queue_files import QueueSlice, queue_slices, queues
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.queued_columns import queued_columns
from rocketbroker.analytics.tables.queued_entries import QueuedEntries, queued_entries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import (
    BROKER,
    TEXTS,
    TIME,
    Rows,
    Table,
    TableOptions,
    constant,
    field,
    select_by,
)
from rocketbroker.analytics.tables.unqueued_records import EVERYWHERE, LogPart, log_parts, logged_entries, queued_to
from rocketbroker.codec.message.message_const import (
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE

# Entries of a part: their records are scattered over the log, so reading those takes far longer.
_PART_BYTES = 20 << 14


@dataclass(frozen=True, slots=True)
class DeadLetterPart:
    """A slice of a group's dead-letter queue, with the entries that lead before the physical offset ``before``."""

    store: StoreRoot
    piece: QueueSlice
    before: int = EVERYWHERE


class DeadLettersTable(Table):
    """One row per message in a queue of ``%DLQ%<group>``."""

    name = "dead_letters"
    comment = "a message that a consumer group gave up, in the queue of its `%DLQ%` topic"
    schema = pa.schema(
        [
            BROKER,
            field("group_name", pa.string(), "group that gave it up"),
            field("topic", pa.string(), "%DLQ% and the group"),
            field("queue_id", pa.int32(), "queue within that topic"),
            field("queue_offset", pa.int64(), "number of the message in that queue"),
            field("physical_offset", pa.int64(), "byte offset of the record in the commit log"),
            field("store_timestamp", TIME, "when it became a dead letter"),
            field("born_timestamp", TIME, "when the producer made it, by the producer's clock"),
            field("origin_topic", pa.string(), "topic it was sent to (RETRY_TOPIC, else DLQ_ORIGIN_TOPIC)"),
            field("origin_message_id", pa.string(), "offset message id it had there (ORIGIN_MESSAGE_ID)"),
            field("real_topic", pa.string(), "topic that it last waited for (REAL_TOPIC)"),
            field("reconsume_times", pa.int32(), "failed consumptions, the last one included"),
            field(
                "max_reconsume_times", pa.int64(), "so many the consumer allowed, null if it left that to the broker"
            ),
            field("msg_id", pa.string(), "offset message id of the dead letter"),
            field("uniq_key", pa.string(), "unique message id (property UNIQ_KEY)"),
            field("keys", pa.string(), "keys, separated by blanks (property KEYS)"),
            field("tags", pa.string(), "property TAGS"),
            field("body", pa.binary(), "the body as stored: compressed if sys_flag & 1"),
            field("sys_flag", pa.int32(), "bits of MessageSysFlag"),
            field("properties", TEXTS, "all properties by name"),
            field("size", pa.int32(), "bytes of the whole record"),
        ]
    )
    selects = select_by(
        "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "keys", "uniq_key", "tags"
    )

    def plan(
        self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions
    ) -> list[DeadLetterPart | LogPart]:
        """Return parts of the queues, and of the log from the offset where queues may be incomplete."""
        parts = list[DeadLetterPart | LogPart]()
        for folder in map(root_folder, stores):
            before = queued_to(folder)
            parts += [DeadLetterPart(folder.root, piece, before) for piece in _pieces(folder, selection)]
            parts += log_parts(folder, before, options.split_size)
        return parts

    def read(self, part: DeadLetterPart | LogPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the dead letters of a part; without its record, an entry has only the values from the queue."""
        broker = part.split.file.root.broker if isinstance(part, LogPart) else part.store.broker
        for entries in _entries(part):
            yield chosen(_rows(broker, entries), self.selects, selection, schema)


def _entries(part: DeadLetterPart | LogPart) -> Iterator[QueuedEntries]:
    if isinstance(part, LogPart):
        yield from logged_entries(part, DLQ_GROUP_TOPIC_PREFIX)
        return
    for entries in queued_entries(root_folder(part.store), iter([part.piece])):
        own = np.flatnonzero(entries.physical_offsets < part.before)
        if len(own):
            yield entries.taken(own)


def _pieces(folder: StoreFolder, selection: Selection) -> Iterator[QueueSlice]:
    for topic, queue_id in queues(folder, CONSUME_QUEUE):
        wanted = selection.topics is None or topic in selection.topics
        if wanted and topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            yield from queue_slices(folder, CONSUME_QUEUE, topic, queue_id, _PART_BYTES)


def _rows(broker: str, entries: QueuedEntries) -> Rows:
    group = entries.topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
    columns = queued_columns(DeadLettersTable.schema, broker, entries, _OF_PROPERTIES)
    return Rows(len(entries), columns | {"group_name": constant(group, pa.string(), len(entries))})


_OF_PROPERTIES: Final[dict[str, Callable[[RecordValues], pa.Array]]] = {
    "origin_topic": lambda values: pc.coalesce(
        values.property(PROPERTY_RETRY_TOPIC), values.property(PROPERTY_DLQ_ORIGIN_TOPIC)
    ),
    "origin_message_id": lambda values: pc.coalesce(
        values.property(PROPERTY_ORIGIN_MESSAGE_ID), values.property(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    ),
    "real_topic": lambda values: values.property(PROPERTY_REAL_TOPIC),
    "max_reconsume_times": lambda values: values.number(PROPERTY_MAX_RECONSUME_TIMES),
}
