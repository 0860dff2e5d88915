"""First offset to consume in a queue (RebalancePushImpl.computePullFromWhere)."""

from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere


class StartOffset:
    """Start of each queue: the group's offset, for a new group as configured.

    Args:
        where: start of a new group.
        timestamp_ms: store time for CONSUME_FROM_TIMESTAMP.
        queue_offsets: asks the brokers.
    """

    def __init__(self, where: ConsumeFromWhere, timestamp_ms: int, queue_offsets: QueueOffsets) -> None:
        self._where = where
        self._timestamp_ms = timestamp_ms
        self._queue_offsets = queue_offsets
        self._from_first: set[str] = set()

    def begin_at_first(self, topic: str) -> None:
        """Start a topic at its first message: it was created after the subscription, so all its messages are new."""
        self._from_first.add(topic)

    async def find(self, queue: MessageQueue, store: OffsetStore) -> int:
        """Return the first offset to consume.

        The offset of a new group is persisted at once. Otherwise the next member to get the queue would start at its
        end, beyond messages that this one was given and has not consumed.

        Raises:
            RocketBrokerError: a broker does not answer, or the store cannot be read.
        """
        offset = await store.read(queue)
        if offset is None:
            offset = await self._new(queue)
            store.update(queue, offset)
            await store.persist([queue])
        return offset

    async def _new(self, queue: MessageQueue) -> int:
        from_first = self._where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or queue.topic in self._from_first
        if from_first or queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return await self._queue_offsets.min_offset(queue)
        if self._where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return await self._queue_offsets.search_offset(queue, self._timestamp_ms)
        return await self._queue_offsets.max_offset(queue)
