"""GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): system topics (AdminBrokerProcessor)."""

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import SYSTEM_TOPIC_SET
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetSystemTopicListFromBrokerProcessor:
    """Answers the reserved names and those that this broker's configuration adds, sorted."""

    def __init__(self, topics: TopicConfigManager) -> None:
        self._topics = topics

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=TopicList(sorted(SYSTEM_TOPIC_SET | self._topics.system_topics)).encode())
