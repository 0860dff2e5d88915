"""Progress of groups, for GET_CONSUME_STATS and GET_BROKER_CONSUME_STATS."""

import logging
from collections.abc import Iterable

from rocketbroker.broker.broker_stats_manager import GROUP_GET_NUMS, BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import OffsetWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.common.errors import shown
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.support.loop_share import LoopShare
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)


class ConsumeStatsCollector:
    """Compares the offsets of groups with those of queues.

    Args:
        broker_name: name for the message queues.
        topics: the topics, with their numbers of queues.
        offsets: progress of the groups.
        consumers: subscriptions of the groups.
        queues: ends of the queues.
        queries: store times of messages.
        stats: rates.
        encoder: encoder of the answers, with their limit.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one source for each figure
        self,
        broker_name: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        stats: BrokerStatsManager,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._queries = queries
        self._stats = stats
        self._encoder = encoder

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that the group has offsets in, sorted."""
        return sorted(self._offsets.topics_of(group))

    def topics_of_groups(self) -> dict[str, list[str]]:
        """Return all groups that have offsets, with their sorted topics."""
        return {group: sorted(topics) for group, topics in self._offsets.group_topic_map().items()}

    def followed(self, group: str, committed: Iterable[str]) -> list[str]:
        """Return the topics that the group subscribes to; those with ``committed`` offsets while it has no client.

        A new group whose consumers hang has no offsets. RocketMQ leaves its topics out, so that its lag seems to be 0.
        A group that broadcasts keeps its offsets elsewhere.
        """
        info = self._consumers.group_info(group)
        if info is None or not info.subscription_table or info.is_broadcasting:
            return self.subscribed(group, committed)
        return sorted(info.subscription_table)

    def subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """Select the topics that the group subscribes to; all while it has no client."""
        info = self._consumers.group_info(group)
        if info is None or not info.subscription_table:
            return list(topics)
        return [topic for topic in topics if topic in info.subscription_table]

    def count_queues(self, topics: Iterable[str]) -> int:
        """Count the queues of those topics that exist."""
        configs = map(self._topics.select, topics)
        return sum(config.read_queue_nums for config in configs if config is not None)

    def check(self, queues: int) -> None:
        """Check that one answer may have ``queues`` queues.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many.
        """
        self._encoder.check(queues)

    async def encode(self, body: RemotingSerializable, queues: int) -> bytes:
        """Encode statistics of ``queues`` queues."""
        return await self._encoder.encode(body, queues)

    async def offset_table(self, group: str, topic: str, share: LoopShare) -> dict[MessageQueue, OffsetWrapper] | None:
        """Return the queues of a topic as the group sees them, ``None`` if there is no such topic."""
        config = self._topics.select(topic)
        if config is None:
            log.debug("group %s has offsets in topic %s, which does not exist", group, shown(topic))
            return None
        table = {}
        for queue_id in range(config.read_queue_nums):
            table[MessageQueue(topic, self._broker_name, queue_id)] = self._queue(group, topic, queue_id)
            await share.turn()
        return table

    def is_order(self, topic: str) -> bool:
        """Return true if the topic is ordered."""
        return self._topics.is_order_topic(topic)

    def consume_tps(self, group: str, topic: str) -> float:
        """Return the number of messages a second that the group got from the topic in the last minute."""
        got = self._stats.view(GROUP_GET_NUMS, f"{topic}@{group}")
        return got.stats_minute.tps if got else 0.0

    def _queue(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        committed = max(0, self._offsets.query(group, topic, queue_id))
        pulled = self._offsets.query_pull(group, topic, queue_id)
        end = self._queues.max_offset_in_queue(topic, queue_id)
        last = self._queries.message_store_timestamp(topic, queue_id, committed - 1) if committed else 0
        return OffsetWrapper(end, committed, max(committed, pulled), max(0, last))
