"""The table ``dead_letters``: messages that a consumer group gave up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.message_schema import TIME, field, message_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.queue_files import QueueSlice, queue_slices, queues
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import Split
from rocketbroker.analytics.tables.queued_messages import (
    EVERYWHERE,
    Makers,
    QueuedEntries,
    log_splits,
    logged_entries,
    queued_entries,
    queued_rows,
    queued_to,
)
from rocketbroker.analytics.tables.table import BROKER, Table, TableOptions, chosen, root_folder, select_by
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

# Bytes of entries per part: few, since their records are scattered over the log and take far longer to read.
_PART_BYTES = 20 << 14


@dataclass(frozen=True, slots=True)
class DeadLetterPart:
    """A slice of a group's dead-letter queue, with the entries that point before the physical offset ``before``."""

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
            field("topic", pa.string(), "%DLQ% and the name of the group"),
            *message_fields("queue_id", "queue_offset", "physical_offset"),
            field("store_timestamp", TIME, "when it became a dead letter"),
            *message_fields("born_timestamp"),
            field("origin_topic", pa.string(), "original topic (RETRY_TOPIC, else DLQ_ORIGIN_TOPIC)"),
            field("origin_message_id", pa.string(), "offset message id in the original topic (ORIGIN_MESSAGE_ID)"),
            field("real_topic", pa.string(), "topic of its last delay (REAL_TOPIC)"),
            field("reconsume_times", pa.int32(), "failed consumptions, including the last one"),
            field("max_reconsume_times", pa.int64(), "retries that the consumer allowed, null for the group's number"),
            field("msg_id", pa.string(), "offset message id of the dead letter"),
            *message_fields("uniq_key", "keys", "tags", "body", "sys_flag", "properties", "size"),
        ]
    )
    selects = select_by(
        "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "keys", "uniq_key", "tags"
    )

    def plan(
        self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions
    ) -> list[DeadLetterPart | Split]:
        """Return parts of the queues, and splits of the log from the offset where queues may be incomplete."""
        parts = list[DeadLetterPart | Split]()
        for folder in map(root_folder, stores):
            before = queued_to(folder)
            parts += [DeadLetterPart(folder.root, piece, before) for piece in _pieces(folder, selection)]
            parts += log_splits(folder, before, options.split_size)
        return parts

    def read(self, part: DeadLetterPart | Split, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the dead letters of a part; an entry without a record has only the values from the queue."""
        broker = part.file.root.broker if isinstance(part, Split) else part.store.broker
        for entries in _entries(part):
            group = entries.topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
            rows = queued_rows(self.schema, broker, entries, {"group_name": group}, _OF_PROPERTIES)
            yield chosen(rows, self.selects, selection, schema)


def _entries(part: DeadLetterPart | Split) -> Iterator[QueuedEntries]:
    if isinstance(part, Split):
        yield from logged_entries(part, DLQ_GROUP_TOPIC_PREFIX)
        return
    for entries in queued_entries(root_folder(part.store), iter([part.piece])):
        own = np.flatnonzero(entries.physical_offsets < part.before)
        if len(own):
            yield entries.taken(own)


def _pieces(folder: StoreFolder, selection: Selection) -> Iterator[QueueSlice]:
    for topic, queue_id in queues(folder, CONSUME_QUEUE):
        if selection.has_queue(topic, queue_id) and topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            yield from queue_slices(folder, CONSUME_QUEUE, topic, queue_id, _PART_BYTES)


_OF_PROPERTIES: Final[Makers] = {
    "origin_topic": lambda values: pc.coalesce(
        values.property(PROPERTY_RETRY_TOPIC), values.property(PROPERTY_DLQ_ORIGIN_TOPIC)
    ),
    "origin_message_id": lambda values: pc.coalesce(
        values.property(PROPERTY_ORIGIN_MESSAGE_ID), values.property(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    ),
    "real_topic": lambda values: values.property(PROPERTY_REAL_TOPIC),
    "max_reconsume_times": lambda values: values.number(PROPERTY_MAX_RECONSUME_TIMES),
}
