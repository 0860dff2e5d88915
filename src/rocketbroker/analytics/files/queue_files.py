"""Queues of a local or remote store, ``KIND/TOPIC/NUMBER``: folders, entries in parts of the files, ends."""

import logging
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from rocketbroker.analytics.files.store_files import StoreFolder, is_file_name, opened
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.config_tables import loads_config
from rocketbroker.codec.storefile.consume_queue_layout import RETIRED
from rocketbroker.codec.storefile.queue_files import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    ENTRIES,
    Entries,
    QueueFiles,
    is_entry,
    queue_offsets,
)
from rocketbroker.codec.storefile.store_file import OffsetFile, offset_files
from rocketbroker.common.errors import CodecError

_MOST: Final = (1 << 31) - 1


def queue_topics(folder: StoreFolder, kind: str) -> list[str]:
    """Return the topics that have queues of a kind, sorted; deleted topics whose files still exist are left out."""
    return [name for name in folder.folders(kind) if not RETIRED.search(name)]


def known_topics(folder: StoreFolder) -> set[str]:
    """Return the topics that have queues or are in ``config/topics.json``; empty for a commit log alone."""
    queued = {topic for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) for topic in queue_topics(folder, kind)}
    try:
        config = loads_config(folder.read_if_there("config/topics.json") or b"{}")
    except CodecError:
        return queued
    return queued | set(config.get("topicConfigTable", ()))


def owning_topics(folder: StoreFolder, kind: str) -> list[str]:
    """Return the topics whose queues own their messages, without LMQs: their messages are in another queue as well."""
    return [topic for topic in queue_topics(folder, kind) if not topic.startswith(LMQ_PREFIX)]


def queue_numbers(folder: StoreFolder, kind: str, topic: str) -> list[int]:
    """Return the numbers of a topic's queues, ascending; names that a broker does not use are ignored."""
    names = [name for name in folder.folders(f"{kind}/{topic}") if name.isascii() and name.isdigit()]
    return sorted(int(name) for name in names if str(int(name)) == name and int(name) <= _MOST)


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


logger = logging.getLogger(__name__)


def queue_end(folder: StoreFolder, topic: str, queue_id: int) -> int | None:
    """Return the queue offset after a queue's last message, ``None`` if the queue does not exist.

    A damaged offsets file may contain a topic that is not a valid folder name: a warning is logged.
    """
    if not is_file_name(topic):
        logger.warning("%s: the topic name %r in an offsets file is invalid; it is skipped", folder.root.shown, topic)
        return None
    ends = [_end(folder, kind, topic, queue_id) for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)]
    return max((end for end in ends if end is not None), default=None)


def queue_begin(folder: StoreFolder, topic: str, queue_id: int, log_begin: int) -> int | None:
    """Return the offset of a queue's first message in a log that begins at ``log_begin``.

    It is the end of the queue if all its messages were removed, ``None`` if it never had one.
    """
    for kind in ENTRIES:
        files = queue_files(folder, kind, topic, queue_id)
        last = files.last_written()
        if last is not None:
            numbers = range(files.first, last[0] + 1)
            at = bisect_left(numbers, True, key=lambda number: _is_after(files.read(number, number + 1), log_begin))
            if at == len(numbers):
                return _end(folder, kind, topic, queue_id)
            first = numbers[at]
            return int(queue_offsets(files.read(first, first + 1), np.array([first]))[0])
    return None


def _is_after(entry: Entries, log_begin: int) -> bool:
    return bool(is_entry(entry)[0]) and int(entry["commit_log_offset"][0]) >= log_begin


def _end(folder: StoreFolder, kind: str, topic: str, queue_id: int) -> int | None:
    last = queue_files(folder, kind, topic, queue_id).last_written()
    if last is None:
        return 0 if folder.is_folder(f"{kind}/{topic}/{queue_id}") else None
    number, entry = last
    return number + 1 if kind == CONSUME_QUEUE else int(entry["msg_base_offset"][0]) + int(entry["batch_size"][0])
