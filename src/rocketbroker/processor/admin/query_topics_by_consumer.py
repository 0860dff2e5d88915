"""QUERY_TOPICS_BY_CONSUMER (343): topics in which a group has offsets (AdminBrokerProcessor.queryTopicsByConsumer)."""

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import QueryTopicsByConsumerRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.support.name_check import check_known_group


class QueryTopicsByConsumerProcessor:
    """Answers the sorted topics, and the broker's address."""

    def __init__(self, config: BrokerConfig, offsets: ConsumerOffsetManager) -> None:
        self._config = config
        self._offsets = offsets

    def process(self, _connection: Connection, command: RemotingCommand[QueryTopicsByConsumerRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.group
        check_known_group(group)
        address = join_address(self._config.broker_ip1, self._config.listen_port)
        return response(body=TopicList(sorted(self._offsets.topics_of(group)), address).encode())
