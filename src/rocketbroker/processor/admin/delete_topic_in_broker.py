"""DELETE_TOPIC_IN_BROKER (215): removes a topic and all that is known of it (AdminBrokerProcessor.deleteTopic)."""

import logging
from typing import Protocol

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.topic import DeleteTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.admin.update_and_create_topic import check_changeable_topic

log = logging.getLogger(__name__)


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


class DeleteTopicInBrokerProcessor:
    """Forgets the topic, the offsets that groups have in it, its queues and its counters.

    The messages stay in the CommitLog until its files expire. A topic that does not exist is removed all the same,
    since parts of it may be left.
    """

    def __init__(
        self, topics: TopicConfigManager, offsets: ConsumerOffsetManager, store: QueueRemover, stats: BrokerStatsManager
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats

    async def process(self, connection: Connection, command: RemotingCommand[DeleteTopicRequestHeader]) -> Command:
        """Remove the topic.

        Raises:
            BrokerResponseError: INVALID_PARAMETER, the name is illegal or one of the system's; SYSTEM_ERROR, the disk
                refused. Nothing was removed.
        """
        topic = command.header.topic
        check_changeable_topic(self._topics, topic)
        log.info("%s deletes topic %s", connection.remote_address, topic)
        try:
            await self._store.mark_deleted({topic})
            self._store.delete_topics({topic})
        except (OSError, StoreError) as error:
            remark = f"the queues of topic {topic} cannot be removed, it stays: {error}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
        self._topics.delete(topic)
        self._offsets.remove_topic(topic)
        self._stats.remove_topic(topic)
        return response()
