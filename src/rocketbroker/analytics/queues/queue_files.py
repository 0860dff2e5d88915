"""The files of ConsumeQueues and BatchConsumeQueues, and their entries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.mapped_files import mapped_files
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.queues.queue_folders import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, queue_numbers, queue_topics
from rocketbroker.codec.storefile.consume_queue_layout import FILLER_SIZE
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY

#: What an entry of a queue in each of these folders looks like.
ENTRIES: Final = {CONSUME_QUEUE: CONSUME_QUEUE_ENTRY, BATCH_CONSUME_QUEUE: BATCH_CONSUME_QUEUE_ENTRY}
# So many entries are read at a time: 5 MB.
_AT_ONCE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Bytes ``low`` to before ``high`` of a queue's file.

    Attributes:
        kind: the folder that the queue is in, a key of ``ENTRIES``.
        topic: the queue's topic.
        queue_id: its number.
        file: the file's path in the store.
        base: byte position of the file in its queue.
        low: first byte, that of an entry.
        high: byte behind the last one.
    """

    kind: str
    topic: str
    queue_id: int
    file: str
    base: int
    low: int
    high: int


def queues(folder: StoreFolder, kind: str) -> Iterator[tuple[str, int]]:
    """Topic and number of each queue, sorted."""
    for topic in queue_topics(folder, kind):
        for queue_id in queue_numbers(folder, kind, topic):
            yield topic, queue_id


def queue_slices(
    folder: StoreFolder, kind: str, topic: str, queue_id: int, most_bytes: int = 1 << 62
) -> Iterator[QueueSlice]:
    """The files of a queue in order, in slices of whole entries and of ``most_bytes`` bytes, about."""
    path, unit = f"{kind}/{topic}/{queue_id}", ENTRIES[kind].itemsize
    step = max(most_bytes // unit, 1) * unit
    for base, file, size in mapped_files(folder, path):
        end = size - size % unit
        for low in range(0, end, step):
            yield QueueSlice(kind, topic, queue_id, file, base, low, min(low + step, end))


def read_entries(folder: StoreFolder, part: QueueSlice) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Queue offsets and entries of a slice that were written, without fillers; some at a time, in their order."""
    dtype = ENTRIES[part.kind]
    unit = dtype.itemsize
    for low in range(part.low, part.high, _AT_ONCE * unit):
        data = folder.read(part.file, low, min(part.high - low, _AT_ONCE * unit))
        entries = np.frombuffer(data, dtype, len(data) // unit)
        written = np.flatnonzero(_is_entry(entries))
        if len(written):
            entries = entries[written]
            yield _queue_offsets(entries, (part.base + low) // unit + written), entries


def _is_entry(entries: NDArray[Any]) -> NDArray[np.bool_]:
    """A size below 0 was never written by a broker, but is not empty either: it is shown as it is."""
    filler = (entries["size"] == FILLER_SIZE) & (entries["commit_log_offset"] == 0)
    found: NDArray[np.bool_] = (entries["size"] != 0) & ~filler
    return found


def _queue_offsets(entries: NDArray[Any], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """By its place in the queue, where each entry is one message; else what the entry says."""
    fields = entries.dtype.names or ()
    found: NDArray[np.int64] = entries["msg_base_offset"].astype(np.int64) if "msg_base_offset" in fields else places
    return found
