"""The table ``consume_queue``: entries of the ConsumeQueues and BatchConsumeQueues of a store."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.queues.queue_files import QueueSlice, queue_slices, queues, read_entries
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, constant, field, select_by
from rocketbroker.codec.storefile.queue_files import ENTRIES


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Slices of one store's queues."""

    store: StoreRoot
    slices: tuple[QueueSlice, ...]


class ConsumeQueueTable(Table):
    """One row per written entry."""

    name = "consume_queue"
    comment = "an entry of a ConsumeQueue, which says where a message of a queue lies in the commit log"
    schema = pa.schema(
        [
            BROKER,
            field("topic", pa.string(), "topic of the queue"),
            field("queue_id", pa.int32(), "queue within the topic"),
            field("queue_offset", pa.int64(), "number of the message in its queue; of a batch, that of its first one"),
            field("physical_offset", pa.int64(), "byte offset of the record in the commit log"),
            field("size", pa.int32(), "bytes of the whole record"),
            field("tags_code", pa.int64(), "hash of the tags; in SCHEDULE_TOPIC_XXXX when it is due, in ms since 1970"),
            field("batch_size", pa.int32(), "messages in the record: 1, more in a BatchConsumeQueue"),
        ]
    )
    selects = select_by("topic", "queue_id", "queue_offset", "physical_offset")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[QueuePart]:
        """Return the parts, with several whole queues each where these are small."""
        return [part for store in stores for part in _parts(store, selection, options.split_size)]

    def read(self, part: QueuePart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a part, queue by queue."""
        folder = root_folder(part.store)
        for piece in part.slices:
            for queue_offsets, entries in read_entries(folder, piece):
                rows = _rows(part.store.broker, piece, queue_offsets, entries)
                yield chosen(rows, self.selects, selection, schema)


def _parts(store: StoreRoot, selection: Selection, split_size: int) -> Iterator[QueuePart]:
    folder, waiting, size = root_folder(store), list[QueueSlice](), 0
    for kind in ENTRIES:
        for topic, queue_id in queues(folder, kind):
            if not _may_hold(selection, topic, queue_id):
                continue
            for piece in queue_slices(folder, kind, topic, queue_id, split_size):
                waiting.append(piece)
                size += (piece.end - piece.first) * ENTRIES[kind].itemsize
                if size >= split_size:
                    yield QueuePart(store, tuple(waiting))
                    waiting, size = [], 0
    if waiting:
        yield QueuePart(store, tuple(waiting))


def _may_hold(selection: Selection, topic: str, queue_id: int) -> bool:
    return (selection.topics is None or topic in selection.topics) and (
        selection.queue_ids is None or queue_id in selection.queue_ids
    )


def _rows(broker: str, piece: QueueSlice, queue_offsets: NDArray[np.int64], entries: NDArray[Any]) -> Rows:
    count = len(entries)
    return Rows(
        count,
        {
            "broker": constant(broker, pa.string(), count),
            "topic": constant(piece.topic, pa.string(), count),
            "queue_id": constant(piece.queue_id, pa.int32(), count),
            "queue_offset": lambda: pa.array(queue_offsets),
            "physical_offset": lambda: pa.array(entries["commit_log_offset"].astype(np.int64)),
            "size": lambda: pa.array(entries["size"].astype(np.int32)),
            "tags_code": lambda: pa.array(entries["tags_code"].astype(np.int64)),
            "batch_size": lambda: _batch_sizes(entries),
        },
    )


def _batch_sizes(entries: NDArray[Any]) -> pa.Array:
    if "batch_size" in (entries.dtype.names or ()):
        return pa.array(entries["batch_size"].astype(np.int32))
    return pa.array(np.ones(len(entries), np.int32))
