"""Makes appended messages readable: queue entries, index keys, wake-ups (CommitLogDispatcher).

The append path already knows what is needed, so nothing is read back. ``ReputMessageService`` feeds the same methods
when the log is ahead of the queues.
"""

import logging
from collections.abc import Sequence

from rocketbroker.codec.message.message_const import PROPERTY_DELAY_TIME_LEVEL
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.common.errors import StoreFullError
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.delay_level_table import deliver_timestamp
from rocketbroker.store.index_service import BATCH_MESSAGES, IndexService
from rocketbroker.store.message_arriving_listener import MessageArrivingListener

log = logging.getLogger(__name__)

_DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()

# A message that is in the log and not yet in its queue (org.apache.rocketmq.store.DispatchRequest): its queue, queue
# offset, CommitLog offset, size, raw properties, store time in ms. A bare tuple, since one is made for each message.
DispatchRequest = tuple[ConsumeQueue, int, int, int, bytes, int]


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

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Make a batch of messages readable, oldest first.

        Raises:
            StoreFullError: the disk has no room for a queue's entries; the requests before it are dispatched.
        """
        listener = self._listener
        index_service = self._index_service
        for queue, queue_offset, physical_offset, size, properties, store_timestamp in requests:
            tags, unique_key, keys = index_properties(properties)
            tags_code = self._deliver_time(properties, store_timestamp) if queue.schedule else tags_code_bytes(tags)
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

    def _deliver_time(self, properties: bytes, store_timestamp: int) -> int:
        level = get_property(properties, _DELAY) or b""
        return deliver_timestamp(self._delay_levels, int(level) if level.isdigit() else 0, store_timestamp)


def index_properties(properties: bytes) -> tuple[bytes | None, bytes | None, bytes | None]:
    """TAGS, UNIQ_KEY and KEYS of raw properties, each ``None`` when missing: three look-ups at the price of one."""
    tags = unique_key = keys = None
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name == b"TAGS":
            tags = value or None
        elif name == b"UNIQ_KEY":
            unique_key = value or None
        elif name == b"KEYS":
            keys = value or None
    return tags, unique_key, keys
