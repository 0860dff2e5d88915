"""DELETE_TOPIC_IN_BROKER (215): removes a topic and all that is known of it (AdminBrokerProcessor.deleteTopic)."""

import logging

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.topic import DeleteTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.topic_remover import TopicRemover
from rocketbroker.processor.admin.update_and_create_topic import check_changeable_topic
from rocketbroker.processor.support.table_change import wait_settled
from rocketbroker.store.clean.topic_deletion import TopicDeletion

log = logging.getLogger(__name__)


class DeleteTopicInBrokerProcessor:
    """Forgets the topic, the offsets that groups have in it, its queues and its counters.

    The messages stay in the CommitLog until its files expire. A topic that does not exist is removed all the same,
    since parts of it may be left. The answer comes when the tables are on disk and the name servers know.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        deletion: TopicDeletion,
        stats: BrokerStatsManager,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._remover = TopicRemover(offsets, deletion, stats)

    async def process(self, connection: Connection, command: RemotingCommand[DeleteTopicRequestHeader]) -> Command:
        """Remove the topic.

        Raises:
            BrokerResponseError: INVALID_PARAMETER, the name is illegal or one of the system's; SYSTEM_ERROR, the disk
                refused. The remark says what is left.
        """
        topic = command.header.topic
        check_changeable_topic(self._topics, topic)
        log.info("%s deletes topic %s", connection.remote_address, topic)
        await self._remover.remove(topic, ", it stays")
        self._topics.delete(topic)
        await wait_settled(
            [self._topics.settled(topic), self._offsets.flush()],
            f"the messages of topic {topic} are removed, the rest may stay; delete it again when the disk takes it",
        )
        return response()
