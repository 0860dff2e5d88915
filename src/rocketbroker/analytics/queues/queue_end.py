"""Ends of queues, from their files alone."""

import logging

from rocketbroker.analytics.files.store_files import StoreFolder, is_file_name
from rocketbroker.analytics.queues.queue_files import queue_files
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE

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


def _end(folder: StoreFolder, kind: str, topic: str, queue_id: int) -> int | None:
    last = queue_files(folder, kind, topic, queue_id).last_written()
    if last is None:
        return 0 if folder.is_folder(f"{kind}/{topic}/{queue_id}") else None
    number, entry = last
    return number + 1 if kind == CONSUME_QUEUE else int(entry["msg_base_offset"][0]) + int(entry["batch_size"][0])
