"""How far groups have come: what GET_CONSUME_STATS and GET_BROKER_CONSUME_STATS are made of."""

import logging
from collections.abc import Iterable

from rocketbroker.broker.broker_stats_manager import GROUP_GET_NUMS, BrokerStatsManager
from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.statistics import OffsetWrapper
from rocketbroker.processor.queue_reader import QueueReader

log = logging.getLogger(__name__)


class ConsumeStatsCollector:
    """Compares the offsets of groups with those of queues.

    Args:
        broker_name: put into the queues' names.
        topics: say how many queues there are.
        offsets: how far the groups are.
        consumers: say what the groups subscribe to.
        store: how far the queues are.
        stats: rates.
    """

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        store: QueueReader,
        stats: BrokerStatsManager,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats

    def topics_of(self, group: str) -> list[str]:
        """Topics that the group has offsets in, by alphabet."""
        return sorted(self._offsets.topics_of(group))

    def subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """Those of the topics that the group subscribes to; all of them while no client of it is there."""
        info = self._consumers.group_info(group)
        if info is None or not info.subscription_table:
            return list(topics)
        return [topic for topic in topics if topic in info.subscription_table]

    def offset_table(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper] | None:
        """The queues of a topic as the group sees them; ``None`` when there is no such topic."""
        config = self._topics.select(topic)
        if config is None:
            log.warning("group %s has offsets in topic %s, which does not exist", group, topic)
            return None
        queues = range(config.read_queue_nums)
        return {MessageQueue(topic, self._broker_name, i): self._queue(group, topic, i) for i in queues}

    def is_order(self, topic: str) -> bool:
        """Whether the topic is ordered."""
        return self._topics.is_order_topic(topic)

    def consume_tps(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic in the last minute."""
        got = self._stats.view(GROUP_GET_NUMS, f"{topic}@{group}")
        return got.stats_minute.tps if got else 0.0

    def _queue(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        committed = max(0, self._offsets.query(group, topic, queue_id))
        pulled = self._offsets.query_pull(group, topic, queue_id)
        end = self._store.max_offset_in_queue(topic, queue_id)
        last = self._store.message_store_timestamp(topic, queue_id, committed - 1) if committed else 0
        return OffsetWrapper(end, committed, max(committed, pulled), max(0, last))
