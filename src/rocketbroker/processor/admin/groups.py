"""Consumer groups: creation, deletion, permissions, look-up (AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable, Sequence

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.client import QuerySubscriptionResponseBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList, TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    INDEX_PERM_READ,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.long_answers import AnswerEncoder, page_of
from rocketbroker.processor.support.request_checks import (
    check_existing_group,
    check_group,
    check_known_group,
    check_known_topic,
    existing_topic,
    read_body,
)
from rocketbroker.processor.support.table_change import answer_when_settled, wait_settled

log = logging.getLogger(__name__)

_MAX_RETRY_QUEUE_NUMS = 16384
MOST_LOGGED = 5


class UpdateAndCreateSubscriptionGroupProcessor:
    """Changes the table of consumer groups; answers when it is on disk."""

    def __init__(self, groups: SubscriptionGroupManager) -> None:
        self._groups = groups

    def process(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change one group (200).

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, [read_body(command.body, SubscriptionGroupConfig)])

    def process_list(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change several groups (225): all or none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, read_body(command.body, SubscriptionGroupList).group_config_list)

    def _update(
        self, connection: Connection, configs: Sequence[SubscriptionGroupConfig]
    ) -> Command | Awaitable[Command]:
        for config in configs:
            _check(config)
        log.info("%d groups updated by %s: %s", len(configs), connection.remote_address, configs[:MOST_LOGGED])
        for config in configs:
            self._groups.update(config)
        return answer_when_settled([self._groups.settled(config.group_name) for config in configs], response())


def _check(config: SubscriptionGroupConfig) -> None:
    check_group(config.group_name)
    if not 0 <= config.retry_queue_nums <= _MAX_RETRY_QUEUE_NUMS:
        remark = (
            f"the retryQueueNums {config.retry_queue_nums} of group {config.group_name} is illegal; "
            f"use 0 to {_MAX_RETRY_QUEUE_NUMS}"
        )
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
    if config.attributes:
        remark = f"unsupported key: {', '.join(config.attributes)[:160]}; groups have no attributes"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)


class DeleteSubscriptionGroupProcessor:
    """Deletes the group, its counters and, if the request asks for it, its offsets."""

    def __init__(
        self, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager, stats: BrokerStatsManager
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    async def process(
        self, connection: Connection, command: RemotingCommand[DeleteSubscriptionGroupRequestHeader]
    ) -> Command:
        """Delete the group, even one that does not exist: offsets of it may be left.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal; SYSTEM_ERROR if the disk failed. The remark
                says what is left.
        """
        header = command.header
        check_known_group(header.group_name)
        log.info(
            "deletion of group %s by %s, cleanOffset: %s",
            header.group_name,
            connection.remote_address,
            header.clean_offset,
        )
        self._groups.delete(header.group_name)
        await wait_settled([self._groups.settled(header.group_name)])
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            await wait_settled(
                [self._offsets.flush()],
                f"group {header.group_name} is deleted, but its offsets may return after a restart; "
                "delete it again when the disk accepts writes",
            )
        self._stats.remove_group(header.group_name)
        return response()


class GetAllSubscriptionGroupConfigProcessor:
    """Answers the groups, and the topics forbidden to them."""

    def __init__(self, groups: SubscriptionGroupManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._groups = groups

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetAllSubscriptionGroupRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the page is illegal.
        """
        header, groups = command.header, self._groups
        version = groups.data_version
        page = page_of(groups.groups, version, header.data_version, header.group_seq, header.max_group_num)
        forbidden = {name: topics for name, topics in groups.forbidden_table.items() if name in page}
        body = SubscriptionGroupWrapper(page, forbidden, version)
        return response(
            header=GetAllSubscriptionGroupResponseHeader(len(groups.groups)),
            body=await self._encoder.encode(body, len(page)),
        )


class GetSubscriptionGroupConfigProcessor:
    """Answers the group; with ``autoCreateSubscriptionGroup`` it creates a missing one, as RocketMQ does."""

    def __init__(self, groups: SubscriptionGroupManager) -> None:
        self._groups = groups

    def process(
        self, _connection: Connection, command: RemotingCommand[GetSubscriptionGroupConfigRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Answer the request; SUBSCRIPTION_GROUP_NOT_EXIST for a missing group.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        check_known_group(command.header.group)
        config = self._groups.find(command.header.group)
        if config is None:
            return response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return answer_when_settled([self._groups.settled(config.group_name)], response(body=config.encode()))


class UpdateAndGetGroupForbiddenProcessor:
    """Forbids or allows pulls of a topic by a group if ``readable`` is set, and answers the resulting permission."""

    def __init__(self, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> None:
        self._topics = topics
        self._groups = groups

    def process(
        self, connection: Connection, command: RemotingCommand[UpdateGroupForbiddenRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Answer the request.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, TOPIC_NOT_EXIST, or INVALID_PARAMETER for an illegal
                name.
        """
        header = command.header
        check_existing_group(self._groups, header.group)
        existing_topic(self._topics, header.topic)
        if header.readable is not None:
            what = "allowed" if header.readable else "forbidden"
            log.info("group %s %s to read topic %s, by %s", header.group, what, header.topic, connection.remote_address)
            self._groups.update_forbidden(header.group, header.topic, INDEX_PERM_READ, forbid=not header.readable)
        readable = not self._groups.forbidden(header.group, header.topic) & 1 << INDEX_PERM_READ
        answer = response(remark="", body=GroupForbidden(header.topic, header.group, readable).encode())
        return answer_when_settled([self._groups.settled(header.group)], answer)


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


class QuerySubscriptionByConsumerProcessor:
    """Answers the subscription of the group's clients, or none if the group has no client."""

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers

    def process(
        self, _connection: Connection, command: RemotingCommand[QuerySubscriptionByConsumerRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a name is illegal.
        """
        group, topic = command.header.group, command.header.topic
        check_known_group(group)
        if topic is None:
            return response(body=QuerySubscriptionResponseBody(group=group).encode())
        check_known_topic(topic)
        found = self._consumers.find_subscription_data(group, topic)
        return response(body=QuerySubscriptionResponseBody(found.data if found else None, group, topic).encode())
