"""Queues of a local or remote store, and the entries in parts of their files."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.queues.queue_folders import queue_numbers, queue_topics
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.queue_files import ENTRIES, Entries, QueueFiles, is_entry, queue_offsets
from rocketbroker.codec.storefile.store_file import OffsetFile, offset_files


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Entries ``first`` to before ``end`` of a queue, all in one file; ``kind`` is a key of ``ENTRIES``."""

    kind: str
    topic: str
    queue_id: int
    file: OffsetFile
    first: int
    end: int


def queues(folder: StoreFolder, kind: str) -> Iterator[tuple[str, int]]:
    """Yield topic and number of each queue, sorted."""
    for topic in queue_topics(folder, kind):
        for queue_id in queue_numbers(folder, kind, topic):
            yield topic, queue_id


def queue_files(folder: StoreFolder, kind: str, topic: str, queue_id: int) -> QueueFiles:
    """List the files of a queue; empty if the queue does not exist."""
    where = f"{kind}/{topic}/{queue_id}"
    return QueueFiles(offset_files(folder.files(where), where), partial(opened, folder), ENTRIES[kind])


def queue_slices(
    folder: StoreFolder, kind: str, topic: str, queue_id: int, most_bytes: int = 1 << 62
) -> Iterator[QueueSlice]:
    """Cut the files of a queue into slices of about ``most_bytes`` bytes."""
    unit = ENTRIES[kind].itemsize
    step = max(most_bytes // unit, 1)
    for file in queue_files(folder, kind, topic, queue_id).files:
        first = file.base // unit
        end = first + file.size // unit
        for begin in range(first, end, step):
            yield QueueSlice(kind, topic, queue_id, file, begin, min(begin + step, end))


def read_entries(folder: StoreFolder, part: QueueSlice) -> Iterator[tuple[Positions, Entries]]:
    """Yield queue offsets and entries of a slice in runs, without fillers and unwritten entries."""
    files = QueueFiles([part.file], partial(opened, folder), ENTRIES[part.kind])
    for number, entries in files.pieces(part.first, part.end):
        written = np.flatnonzero(is_entry(entries))
        if len(written):
            found = entries[written]
            yield queue_offsets(found, number + written), found
