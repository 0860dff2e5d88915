"""DELETE_TOPIC_IN_BROKER (215): removes a topic and all that belongs to it (AdminBrokerProcessor.deleteTopic)."""

import logging

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import DeleteTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.topic_remover import TopicRemover
from rocketbroker.processor.admin.update_and_create_topic import check_changeable_topic
from rocketbroker.processor.support.table_change import wait_settled
from rocketbroker.store.clean.topic_deletion import TopicDeletion

log = logging.getLogger(__name__)


class DeleteTopicInBrokerProcessor:
    """Deletes the topic, the offsets that groups have in it, its queues and its counters.

    The messages stay in the CommitLog until its files expire. A missing topic is removed too, since parts
    of it may be left. The answer follows once the tables are on disk and the name servers are informed.
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
            BrokerResponseError: INVALID_PARAMETER if the name is illegal or that of a system topic; SYSTEM_ERROR if the
                disk refused. The remark says what is left.
        """
        topic = command.header.topic
        check_changeable_topic(self._topics, topic)
        log.info("deletion of topic %s by %s", topic, connection.remote_address)
        await self._remover.remove(topic, ", so the topic stays")
        self._topics.delete(topic)
        await wait_settled(
            [self._topics.settled(topic), self._offsets.flush()],
            f"the messages of topic {topic} are removed, but the rest may stay; delete it again when the disk is "
            "writable",
        )
        return response()
