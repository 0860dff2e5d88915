"""Removes queues whose topic is not in the topic table (DefaultMessageStore.cleanUnusedTopic)."""

from collections.abc import Iterable
from typing import Protocol

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import is_system_topic
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, StoreError


class QueueRemover(Protocol):
    """What is needed of the message store."""

    async def mark_deleted(self, topics: set[str]) -> None:
        """Note on disk that topics are deleted, so that their messages never come back.

        Raises:
            StoreError: messages of them that were under way could not be brought to their queues first.
            OSError: the disk refused.
        """

    def delete_topics(self, topics: set[str]) -> int:
        """Take the queues of topics out of service at once and have their files removed by a thread.

        Raises:
            StoreError: messages of them that were under way could not be brought to their queues first.
            OSError: the disk refused.
        """


class UnusedTopicRemover:
    """Forgets queues, offsets and counters of topics that no longer exist; those of the system stay.

    RocketMQ keeps the offsets: a topic made anew would begin at 0, and its consumers would pass over its messages.
    """

    def __init__(
        self, topics: TopicConfigManager, offsets: ConsumerOffsetManager, store: QueueRemover, stats: BrokerStatsManager
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats

    async def remove(self, candidates: Iterable[str]) -> set[str]:
        """Remove those topics of ``candidates`` that do not exist; gives which they were.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, the disk refused; it may have removed some of them before.
        """
        unused = {topic for topic in candidates if topic not in self._topics.topics and not is_system_topic(topic)}
        for topic in sorted(unused):
            try:
                await self._store.mark_deleted({topic})
                self._store.delete_topics({topic})
            except (OSError, StoreError) as error:
                remark = f"the queues of topic {topic} cannot be removed: {error}"
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
            self._offsets.remove_topic(topic)
            self._stats.remove_topic(topic)
        return unused
