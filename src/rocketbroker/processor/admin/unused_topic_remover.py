"""Removal of queues whose topic is not in the topic table (DefaultMessageStore.cleanUnusedTopic)."""

from collections.abc import Iterable

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import is_system_topic
from rocketbroker.processor.admin.topic_remover import TopicRemover
from rocketbroker.store.clean.topic_deletion import TopicDeletion


class UnusedTopicRemover:
    """Removes queues, offsets and counters of topics that no longer exist; system topics stay.

    RocketMQ keeps the offsets: a topic created again would begin at 0, and its consumers would skip its messages.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        deletion: TopicDeletion,
        stats: BrokerStatsManager,
    ) -> None:
        self._topics = topics
        self._remover = TopicRemover(offsets, deletion, stats)

    async def remove(self, candidates: Iterable[str]) -> set[str]:
        """Remove those topics of ``candidates`` that do not exist, and return them.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed; some of them may be removed already.
        """
        unused = {topic for topic in candidates if topic not in self._topics.topics and not is_system_topic(topic)}
        for topic in sorted(unused):
            await self._remover.remove(topic)
        return unused
