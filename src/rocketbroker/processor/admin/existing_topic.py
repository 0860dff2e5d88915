"""Look-up of the topic that a request names."""

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_known_topic


def existing_topic(topics: TopicConfigManager, topic: str) -> TopicConfig:
    """Return the topic with a name.

    Raises:
        BrokerResponseError: TOPIC_NOT_EXIST, or INVALID_PARAMETER for a name that no topic can have.
    """
    check_known_topic(topic)
    config = topics.select(topic)
    if config is None:
        raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config
