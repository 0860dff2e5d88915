"""QUERY_TOPIC_CONSUME_BY_WHO (300): groups of a topic (AdminBrokerProcessor.queryTopicConsumeByWho)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import QueryTopicConsumeByWhoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_known_topic


class QueryTopicConsumeByWhoProcessor:
    """Answers the groups whose clients subscribe to the topic and those that have offsets in it, sorted."""

    def __init__(self, consumers: ConsumerManager, offsets: ConsumerOffsetManager) -> None:
        self._consumers = consumers
        self._offsets = offsets

    def process(
        self, _connection: Connection, command: RemotingCommand[QueryTopicConsumeByWhoRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        topic = command.header.topic
        check_known_topic(topic)
        groups = self._offsets.groups_of(topic).union(self._consumers.groups_subscribed_to(topic))
        return response(body=GroupList(sorted(groups)).encode())
