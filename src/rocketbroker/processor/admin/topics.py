"""Topics: creation, deletion, look-up, and removal of what no topic uses (AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TOPIC_ATTRIBUTES, TopicConfigManager, alter_attributes
from rocketbroker.codec.message.pop_info import pop_retry_topics
from rocketbroker.codec.message.topic_validator import SYSTEM_TOPIC_SET, is_system_topic
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
)
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.long_answers import AnswerEncoder, page_of
from rocketbroker.processor.support.request_checks import check_known_topic, check_topic, read_body
from rocketbroker.processor.support.request_family import NO_CHANGES, answers
from rocketbroker.processor.support.table_change import answer_when_settled, wait_settled
from rocketbroker.store.clean.topic_deletion import TopicDeletion

log = logging.getLogger(__name__)

# Each queue costs a row in every answer about its topic; RocketMQ's own largest topic has 1024.
MAX_QUEUE_NUMS = 16384
MOST_LOGGED = 5
# PermName.PERM_PRIORITY and above are not permissions of a topic.
_MAX_PERM = 7
_MESSAGE_TYPE = "+message.type"


class Queues(Protocol):
    @property
    def topics(self) -> set[str]:
        """All topics that have queues."""

    def topics_without_messages(self) -> set[str]:
        """Return the topics that have queues, but no message in any of them."""


class Cleaning(Protocol):
    async def clean_expired_consume_queue(self) -> str:
        """Remove the entries of expired messages from queues and index; return the failed removals, or ""."""


@dataclass(frozen=True, slots=True)
class TopicRequests:
    """Requests about topics."""

    config: BrokerConfig
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    deletion: TopicDeletion
    stats: BrokerStatsManager
    encoder: AnswerEncoder
    queues: Queues
    cleaning: Cleaning

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, at_slave=NO_CHANGES)
    def update_and_create_topic(
        self, connection: Connection, command: RemotingCommand[CreateTopicRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Create or change one topic.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, [topic_config(command.header)])

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, at_slave=NO_CHANGES)
    def update_and_create_topic_list(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change several topics: all or none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, read_body(command.body, CreateTopicListRequestBody).topic_config_list)

    def _update(self, connection: Connection, configs: Sequence[TopicConfig]) -> Command | Awaitable[Command]:
        for config in configs:
            self._check(config)
        self.topics.check_room(len({config.topic_name for config in configs} - self.topics.topics.keys()))
        changed = [config for config in configs if config != self.topics.select(config.topic_name)]
        # A list may have thousands, and a line for each would block the loop for longer than the change.
        log.info("%d topics updated by %s: %s", len(changed), connection.remote_address, changed[:MOST_LOGGED])
        for config in changed:
            self.topics.update(config)
        return answer_when_settled([self.topics.settled(config.topic_name) for config in configs], response())

    def _check(self, config: TopicConfig) -> None:
        if self.config.validate_system_topic_when_update_topic:
            check_changeable_topic(self.topics, config.topic_name)
        else:
            check_topic(config.topic_name)
        _check_number(config, "readQueueNums", config.read_queue_nums, MAX_QUEUE_NUMS)
        _check_number(config, "writeQueueNums", config.write_queue_nums, MAX_QUEUE_NUMS)
        _check_number(config, "perm", config.perm, _MAX_PERM)
        if config.attributes.get(_MESSAGE_TYPE) == "MIXED" and not self.config.enable_mixed_message_type:
            remark = "MIXED message type is not supported. enableMixedMessageType is false here"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        old = self.topics.select(config.topic_name)
        if config != old:
            alter_attributes(TOPIC_ATTRIBUTES, None if old is None else old.attributes, config.attributes)

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader)
    async def delete_topic_in_broker(
        self, connection: Connection, command: RemotingCommand[DeleteTopicRequestHeader]
    ) -> Command:
        """Delete the topic, the offsets that groups have in it, its queues, its counters, and its retry topics of POP
        (``clearRetryTopicWhenDeleteTopic``).

        The messages stay in the CommitLog until its files expire. A missing topic is removed too, since parts
        of it may be left. The answer follows once the tables are on disk and the name servers are informed.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal or that of a system topic; SYSTEM_ERROR if the
                disk refused. The remark says what is left.
        """
        topic = command.header.topic
        check_changeable_topic(self.topics, topic)
        log.info("deletion of topic %s by %s", topic, connection.remote_address)
        removed = [topic, *self._retry_topics(topic)]
        for name in removed:
            await self._remove(name, f", so the topic {name} stays")
            self.topics.delete(name)
        await wait_settled(
            [*map(self.topics.settled, removed), self.offsets.flush()],
            f"the messages of topic {topic} are removed, but the rest may stay; delete it again when the disk is "
            "writable",
        )
        return response()

    @answers(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequestHeader, Audience.BROKER)
    async def get_all_topic_config(
        self, _connection: Connection, command: RemotingCommand[GetAllTopicConfigRequestHeader]
    ) -> Command:
        """Answer the topics, with empty mappings, since there are no static topics.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the page is illegal.
        """
        header, topics = command.header, self.topics
        page = page_of(topics.topics, topics.data_version, header.data_version, header.topic_seq, header.max_topic_num)
        body = TopicConfigAndMappingSerializeWrapper(page, topics.data_version)
        return response(
            header=GetAllTopicConfigResponseHeader(len(topics.topics)), body=await self.encoder.encode(body, len(page))
        )

    @answers(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader, Audience.BROKER)
    def get_topic_config(
        self, _connection: Connection, command: RemotingCommand[GetTopicConfigRequestHeader]
    ) -> Command:
        """Answer the topic as the broker keeps it; without a mapping, since there are no static topics.
        TOPIC_NOT_EXIST for a missing topic.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        topic = command.header.topic
        check_known_topic(topic)
        config = self.topics.select(topic)
        if config is None:
            return response(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return response(body=config.encode())

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def get_system_topic_list_from_broker(self, _connection: Connection, _command: Command) -> Command:
        """Answer the reserved names and those that this broker's configuration adds, sorted."""
        return response(body=TopicList(sorted(SYSTEM_TOPIC_SET | self.topics.system_topics)).encode())

    def _retry_topics(self, topic: str) -> list[str]:
        """Return the existing retry topics of POP that go with a topic."""
        if not self.config.clear_retry_topic_when_delete_topic:
            return []
        names = (name for group in sorted(self.offsets.groups_of(topic)) for name in pop_retry_topics(topic, group))
        return [name for name in names if self.topics.select(name) is not None]

    async def _remove(self, topic: str, consequence: str = "") -> None:
        """Remove queues, offsets and counters; the remark of an error ends with ``consequence`` and the cause.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed; nothing was removed.
        """
        try:
            await self.deletion.delete_topics({topic})
        except (OSError, StoreError) as error:
            remark = f"the queues of topic {topic} cannot be removed{consequence}: {error}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
        self.offsets.remove_topic(topic)
        self.stats.remove_topic(topic)

    async def remove_unused(self, candidates: Iterable[str]) -> set[str]:
        """Remove those topics of ``candidates`` that do not exist, and return them; system topics stay.

        RocketMQ keeps the offsets: a topic created again would begin at 0, and its consumers would skip its messages.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed; some of them may be removed already.
        """
        unused = {topic for topic in candidates if topic not in self.topics.topics and not is_system_topic(topic)}
        for topic in sorted(unused):
            await self._remove(topic)
        return unused

    @answers(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_unused_topic(self, connection: Connection, _command: Command) -> Command:
        """Remove the queues of topics that are not in the topic table, with the offsets that groups have in them.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed.
        """
        removed = await self.remove_unused(self.queues.topics)
        log.warning("unused topics cleaned by %s: %s", connection.remote_address, ", ".join(sorted(removed)) or "none")
        return response()

    @answers(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    async def clean_expired_consumequeue(self, connection: Connection, _command: Command) -> Command:
        """Remove queue and index files whose messages have expired, and the empty queues of deleted topics.

        RocketMQ also removes the empty queues of existing topics; these would restart at 0, before their
        consumers.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if some files could not be removed; the rest is removed.
        """
        refused = await self.cleaning.clean_expired_consume_queue()
        removed = await self.remove_unused(self.queues.topics_without_messages())
        log.warning(
            "expired queues cleaned by %s; removed topics: %s", connection.remote_address, sorted(removed) or "none"
        )
        if refused:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{refused}; the rest is cleaned")
        return response()


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
