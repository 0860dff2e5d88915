"""Makes appended messages readable: queue entries, index keys, wake-ups (org.apache.rocketmq.store.CommitLogDispatcher).

The append path already knows what is needed, so nothing is read back. ``ReputMessageService`` feeds the same method when
the log is ahead of the queues.
"""

import logging
from typing import NamedTuple

from rocketbroker.codec.message.message_const import PROPERTY_DELAY_TIME_LEVEL
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.common.errors import StoreFullError
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.delay_level_table import deliver_timestamp
from rocketbroker.store.index_service import BATCH_KEYS, IndexService
from rocketbroker.store.message_arriving_listener import MessageArrivingListener

log = logging.getLogger(__name__)

_DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()


class DispatchRequest(NamedTuple):
    """A message that is in the log and not yet in its queue (org.apache.rocketmq.store.DispatchRequest)."""

    queue: ConsumeQueue
    queue_offset: int
    physical_offset: int
    size: int
    properties: bytes
    store_timestamp: int


class CommitLogDispatcher:
    """Enters messages into their queue and the index, and tells who waits for them.

    Args:
        index_service: ``None`` when messageIndexEnable is off.
        listener: who waits for messages.
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX bears its delivery time instead of a tags code.
    """

    def __init__(
        self, index_service: IndexService | None, listener: MessageArrivingListener, delay_levels: dict[int, int]
    ) -> None:
        self._index_service = index_service
        self._listener = listener
        self._delay_levels = delay_levels

    def dispatch(self, requests: list[DispatchRequest]) -> None:
        """Make a batch of messages readable, oldest first.

        Raises:
            StoreFullError: the disk has no room for a queue's entries; the requests before it are dispatched.
        """
        self.enter_queues(requests)
        self.enter_index(requests)

    def enter_queues(self, requests: list[DispatchRequest]) -> None:
        """Write the queue entries and wake who waits; raises as ``dispatch`` does."""
        listener = self._listener
        for queue, queue_offset, physical_offset, size, properties, store_timestamp in requests:
            if queue.topic == RMQ_SYS_SCHEDULE_TOPIC:
                tags_code = self._deliver_time(properties, store_timestamp)
            else:
                tags_code = tags_code_bytes(get_property(properties, b"TAGS"))
            queue.put(queue_offset, physical_offset, size, tags_code)
            if listener.waiting:
                listener.arriving(queue.topic, queue.queue_id, queue_offset + 1, tags_code)

    def enter_index(self, requests: list[DispatchRequest]) -> None:
        """Have the keys entered, at once when there are many; a full disk only delays that."""
        index_service = self._index_service
        if index_service is None:
            return
        for queue, _, physical_offset, _, properties, store_timestamp in requests:
            index_service.add(queue.topic, properties, physical_offset, store_timestamp)
        if index_service.pending >= BATCH_KEYS:
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

    def _deliver_time(self, properties: bytes, store_timestamp: int) -> int:
        level = get_property(properties, _DELAY) or b""
        return deliver_timestamp(self._delay_levels, int(level) if level.isdigit() else 0, store_timestamp)
