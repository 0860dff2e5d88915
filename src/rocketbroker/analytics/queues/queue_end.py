"""Ends of queues, found in their files without a look at the messages."""

import logging

from rocketbroker.analytics.files.store_files import StoreFolder, is_file_name
from rocketbroker.analytics.queues.queue_files import queue_files
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE

logger = logging.getLogger(__name__)


def queue_end(folder: StoreFolder, topic: str, queue_id: int) -> int | None:
    """Return the queue offset behind a queue's last message, ``None`` if there is no such queue.

    A damaged file of offsets may name a topic that no folder can have: the log says so.
    """
    if not is_file_name(topic):
        logger.warning("%s names a topic %r: no queue can be called so, it is passed over", folder.root.shown, topic)
        return None
    ends = [_end(folder, kind, topic, queue_id) for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)]
    return max((end for end in ends if end is not None), default=None)


def _end(folder: StoreFolder, kind: str, topic: str, queue_id: int) -> int | None:
    last = queue_files(folder, kind, topic, queue_id).last_written()
    if last is None:
        return 0 if folder.is_folder(f"{kind}/{topic}/{queue_id}") else None
    number, entry = last
    return number + 1 if kind == CONSUME_QUEUE else int(entry["msg_base_offset"][0]) + int(entry["batch_size"][0])
