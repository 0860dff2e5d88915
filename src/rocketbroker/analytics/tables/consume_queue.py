"""The table ``consume_queue``: entries of the ConsumeQueues and BatchConsumeQueues of a store."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rocketbroker.analytics.columns.message_schema import field, message_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.queue_files import QueueSlice, queue_slices, queues, read_entries
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, chosen, root_folder, select_by
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.queue_files import ENTRIES, Entries


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Slices of one store's queues."""

    store: StoreRoot
    slices: tuple[QueueSlice, ...]


class ConsumeQueueTable(Table):
    """One row per written entry."""

    name = "consume_queue"
    comment = "an entry of a ConsumeQueue: the place of one message in the commit log"
    schema = pa.schema(
        [
            BROKER,
            field("topic", pa.string(), "topic of the queue"),
            *message_fields("queue_id"),
            field("queue_offset", pa.int64(), "number of the message in its queue; for a batch, of its first message"),
            *message_fields("physical_offset", "size"),
            field("tags_code", pa.int64(), "hash of the tags; in SCHEDULE_TOPIC_XXXX the due time, ms since 1970"),
            field("batch_size", pa.int32(), "messages in the record: 1, or more in a BatchConsumeQueue"),
        ]
    )
    selects = select_by("topic", "queue_id", "queue_offset", "physical_offset")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[QueuePart]:
        """Return the parts, with several whole queues each where these are small."""
        return [part for store in stores for part in _parts(store, selection, options.split_size)]

    def read(self, part: QueuePart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        folder = root_folder(part.store)
        for piece in part.slices:
            for queue_offsets, entries in read_entries(folder, piece):
                rows = _rows(part.store.broker, piece, queue_offsets, entries)
                yield chosen(rows, self.selects, selection, schema)


def _parts(store: StoreRoot, selection: Selection, split_size: int) -> Iterator[QueuePart]:
    folder, waiting, size = root_folder(store), list[QueueSlice](), 0
    for kind in ENTRIES:
        for topic, queue_id in queues(folder, kind):
            if not selection.has_queue(topic, queue_id):
                continue
            for piece in queue_slices(folder, kind, topic, queue_id, split_size):
                waiting.append(piece)
                size += (piece.end - piece.first) * ENTRIES[kind].itemsize
                if size >= split_size:
                    yield QueuePart(store, tuple(waiting))
                    waiting, size = [], 0
    if waiting:
        yield QueuePart(store, tuple(waiting))


def _rows(broker: str, piece: QueueSlice, queue_offsets: Positions, entries: Entries) -> Rows:
    columns = {
        "broker": broker,
        "topic": piece.topic,
        "queue_id": piece.queue_id,
        "queue_offset": queue_offsets,
        "physical_offset": entries["commit_log_offset"],
        "batch_size": entries["batch_size"] if "batch_size" in (entries.dtype.names or ()) else 1,
    }
    return Rows(len(entries), columns | {name: entries[name] for name in ("size", "tags_code")})
