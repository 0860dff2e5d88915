"""Makes appended messages readable: queue entries, index keys, wake-ups (CommitLogDispatcher).

The append path already knows what is needed, so nothing is read back. ``ReputMessageService`` feeds the same methods
when the log is ahead of the queues.
"""

import logging
from collections.abc import Sequence

from rocketbroker.common.errors import StoreFullError
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.index_service import BATCH_MESSAGES, IndexService
from rocketbroker.store.message_arriving_listener import MessageArrivingListener

log = logging.getLogger(__name__)

# A message that is in the log and not yet in its queue (org.apache.rocketmq.store.DispatchRequest): its queue, queue
# offset, CommitLog offset, size, tags code, store time in ms, and its TAGS, UNIQ_KEY and KEYS. A bare tuple, since one
# is made for each message.
DispatchRequest = tuple[ConsumeQueue, int, int, int, int, int, bytes | None, bytes | None, bytes | None]


class CommitLogDispatcher:
    """Enters messages into their queue and the index, and tells who waits for them.

    Args:
        index_service: ``None`` when messageIndexEnable is off.
        listener: who waits for messages.
    """

    def __init__(self, index_service: IndexService | None, listener: MessageArrivingListener) -> None:
        self._index_service = index_service
        self._listener = listener

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Make a batch of messages readable, oldest first.

        Raises:
            StoreFullError: the disk has no room for a queue's entries; the requests before it are dispatched.
        """
        listener = self._listener
        index_service = self._index_service
        for queue, queue_offset, physical_offset, size, tags_code, store_timestamp, tags, unique_key, keys in requests:
            if queue_offset >= queue.max_offset:
                queue.put(queue_offset, physical_offset, size, tags_code)
                if listener.waiting:
                    listener.arriving(queue.topic, queue.queue_id, queue_offset + 1, tags_code)
            if index_service is not None:
                index_service.add(queue, physical_offset, store_timestamp, unique_key, keys, tags)
        if index_service is not None and index_service.pending >= BATCH_MESSAGES:
            self.flush_index()

    def flush_index(self) -> None:
        """Enter the keys that wait."""
        if self._index_service is None:
            return
        try:
            self._index_service.flush()
        except StoreFullError:
            # The keys are kept and tried again; consumers are served all the same.
            log.exception("messages are stored and readable, but cannot be indexed yet")
