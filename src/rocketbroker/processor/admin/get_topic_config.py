"""GET_TOPIC_CONFIG (351): one topic (AdminBrokerProcessor.getTopicConfig)."""

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetTopicConfigRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.name_check import check_known_topic


class GetTopicConfigProcessor:
    """Answers the topic as the broker keeps it; without a mapping, since there are no static topics."""

    def __init__(self, topics: TopicConfigManager) -> None:
        self._topics = topics

    def process(self, _connection: Connection, command: RemotingCommand[GetTopicConfigRequestHeader]) -> Command:
        """Answer the request; TOPIC_NOT_EXIST for a missing topic.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        topic = command.header.topic
        check_known_topic(topic)
        config = self._topics.select(topic)
        if config is None:
            return response(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return response(body=config.encode())
