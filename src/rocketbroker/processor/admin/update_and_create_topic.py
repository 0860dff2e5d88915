"""UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_TOPIC_LIST (18): creates or changes topics (AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable, Sequence

from rocketbroker.broker.topic.topic_config_manager import TOPIC_ATTRIBUTES, TopicConfigManager, alter_attributes
from rocketbroker.codec.message.topic_validator import is_system_topic
from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody, TopicConfig, TopicFilterType
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import CreateTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_topic
from rocketbroker.processor.support.request_body import read_body
from rocketbroker.processor.support.table_change import answer_when_settled

log = logging.getLogger(__name__)

# Each queue costs a row in every answer about its topic; RocketMQ's own largest topic has 1024.
MAX_QUEUE_NUMS = 16384
MOST_LOGGED = 5
# PermName.PERM_PRIORITY and above are not permissions of a topic.
_MAX_PERM = 7
_MESSAGE_TYPE = "+message.type"


class UpdateAndCreateTopicProcessor:
    """Changes the table of topics; answers once it is on disk and the name servers are informed."""

    def __init__(self, config: BrokerConfig, topics: TopicConfigManager) -> None:
        self._config = config
        self._topics = topics

    def process(
        self, connection: Connection, command: RemotingCommand[CreateTopicRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Create or change one topic (17).

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, [topic_config(command.header)])

    def process_list(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change several topics (18): all or none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, read_body(command.body, CreateTopicListRequestBody).topic_config_list)

    def _update(self, connection: Connection, configs: Sequence[TopicConfig]) -> Command | Awaitable[Command]:
        for config in configs:
            self._check(config)
        self._topics.check_room(len({config.topic_name for config in configs} - self._topics.topics.keys()))
        changed = [config for config in configs if config != self._topics.select(config.topic_name)]
        # A list may have thousands, and a line for each would block the loop for longer than the change.
        log.info("%d topics updated by %s: %s", len(changed), connection.remote_address, changed[:MOST_LOGGED])
        for config in changed:
            self._topics.update(config)
        return answer_when_settled([self._topics.settled(config.topic_name) for config in configs], response())

    def _check(self, config: TopicConfig) -> None:
        check_changeable_topic(self._topics, config.topic_name)
        _check_number(config, "readQueueNums", config.read_queue_nums, MAX_QUEUE_NUMS)
        _check_number(config, "writeQueueNums", config.write_queue_nums, MAX_QUEUE_NUMS)
        _check_number(config, "perm", config.perm, _MAX_PERM)
        if config.attributes.get(_MESSAGE_TYPE) == "MIXED" and not self._config.enable_mixed_message_type:
            remark = "MIXED message type is not supported. enableMixedMessageType is false here"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        old = self._topics.select(config.topic_name)
        if config != old:
            alter_attributes(TOPIC_ATTRIBUTES, None if old is None else old.attributes, config.attributes)


def check_changeable_topic(topics: TopicConfigManager, topic: str) -> None:
    """Check that requests may create, change or remove a topic.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if the name is illegal or that of a system topic.
    """
    check_topic(topic)
    if is_system_topic(topic) or topic in topics.system_topics:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")


def topic_config(header: CreateTopicRequestHeader) -> TopicConfig:
    """Make the topic that a request describes; its attributes are changes, each name with its sign.

    Raises:
        BrokerResponseError: The filter type or the attributes are illegal.
    """
    if header.topic_filter_type not in TopicFilterType.__members__:
        remark = f"the topicFilterType {header.topic_filter_type[:64]!r} is illegal; use SINGLE_TAG or MULTI_TAG"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=TopicFilterType(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_attributes(header.attributes or ""),
    )


def parse_attributes(text: str) -> dict[str, str]:
    """Parse ``+key1=value1,-key2`` into a table, each name with its sign (AttributeParser.parseToMap).

    Raises:
        BrokerResponseError: SYSTEM_ERROR, which names the part that is wrong.
    """
    attributes: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name.startswith("+" if equals else "-"):
            remark = f"the attribute {part[:160]!r} is wrong; use +key=value or -key"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        if name in attributes:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"key duplication: {name[:160]}")
        attributes[name] = value
    return attributes


def _check_number(config: TopicConfig, name: str, value: int, high: int) -> None:
    if not 0 <= value <= high:
        remark = f"the {name} {value} of topic {config.topic_name} is illegal; use 0 to {high}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
