"""Consumer groups: creation, deletion, permissions, look-up (AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import GROUP_ATTRIBUTES, SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager, alter_attributes
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
from rocketbroker.codec.remoting.handler import Audience, Connection
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
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.long_answers import AnswerEncoder, page_of
from rocketbroker.processor.support.request_checks import (
    check_existing_group,
    check_group,
    check_known_group,
    check_known_topic,
    existing_topic,
    read_body,
)
from rocketbroker.processor.support.request_family import NO_CHANGES, answers
from rocketbroker.processor.support.table_change import answer_when_settled, wait_settled

log = logging.getLogger(__name__)

_MAX_RETRY_QUEUE_NUMS = 16384
MOST_LOGGED = 5


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Requests about consumer groups."""

    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    stats: BrokerStatsManager
    encoder: AnswerEncoder
    topics: TopicConfigManager
    consumers: ConsumerManager
    config: BrokerConfig

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, at_slave=NO_CHANGES)
    def update_and_create_subscriptiongroup(
        self, connection: Connection, command: Command
    ) -> Command | Awaitable[Command]:
        """Create or change one group.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, [read_body(command.body, SubscriptionGroupConfig)])

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, at_slave=NO_CHANGES)
    def update_and_create_subscriptiongroup_list(
        self, connection: Connection, command: Command
    ) -> Command | Awaitable[Command]:
        """Create or change several groups: all or none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, read_body(command.body, SubscriptionGroupList).group_config_list)

    def _update(
        self, connection: Connection, configs: Sequence[SubscriptionGroupConfig]
    ) -> Command | Awaitable[Command]:
        # A list may name a group twice: what is checked is the change of what the earlier ones leave.
        left: dict[str, dict[str, str]] = {}
        for config in configs:
            _check(config)
            name, old = config.group_name, self.groups.groups.get(config.group_name)
            current = left.get(name, None if old is None else old.attributes)
            left[name] = alter_attributes(GROUP_ATTRIBUTES, current, config.attributes)
        log.info("%d groups updated by %s: %s", len(configs), connection.remote_address, configs[:MOST_LOGGED])
        for config in configs:
            self.groups.update(config)
        return answer_when_settled([self.groups.settled(config.group_name) for config in configs], response())

    @answers(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader, at_slave=NO_CHANGES)
    async def delete_subscriptiongroup(
        self, connection: Connection, command: RemotingCommand[DeleteSubscriptionGroupRequestHeader]
    ) -> Command:
        """Delete the group, its counters and, if the request asks for it, its offsets.

        A group that does not exist is deleted too: offsets of it may be left.

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
        self.groups.delete(header.group_name)
        await wait_settled([self.groups.settled(header.group_name)])
        if header.clean_offset:
            self.offsets.remove_group(header.group_name)
            try:
                await self.offsets.sync_sets()
            except StoreError as error:
                remark = f"group {header.group_name} is deleted, but its offsets may return after a restart: {error}"
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
            await wait_settled(
                [self.offsets.flush()],
                f"group {header.group_name} is deleted, but its offsets may return after a restart; "
                "delete it again when the disk accepts writes",
            )
        self.stats.remove_group(header.group_name)
        return response()

    @answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequestHeader, Audience.BROKER)
    async def get_all_subscriptiongroup_config(
        self, _connection: Connection, command: RemotingCommand[GetAllSubscriptionGroupRequestHeader]
    ) -> Command:
        """Answer the groups, and the topics forbidden to them.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the page is illegal.
        """
        header, groups = command.header, self.groups
        version = groups.data_version
        page = page_of(groups.groups, version, header.data_version, header.group_seq, header.max_group_num)
        forbidden = {name: topics for name, topics in groups.forbidden_table.items() if name in page}
        body = SubscriptionGroupWrapper(page, forbidden, version)
        return response(
            header=GetAllSubscriptionGroupResponseHeader(len(groups.groups)),
            body=await self.encoder.encode(body, len(page)),
        )

    @answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader, Audience.BROKER)
    def get_subscriptiongroup_config(
        self, _connection: Connection, command: RemotingCommand[GetSubscriptionGroupConfigRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Answer the group; with ``autoCreateSubscriptionGroup`` it creates a missing one, as RocketMQ does.
        SUBSCRIPTION_GROUP_NOT_EXIST for a missing group.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        check_known_group(command.header.group)
        config = self.groups.find(command.header.group)
        if config is None:
            return response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return answer_when_settled([self.groups.settled(config.group_name)], response(body=config.encode()))

    @answers(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbiddenRequestHeader)
    def update_and_get_group_forbidden(
        self, connection: Connection, command: RemotingCommand[UpdateGroupForbiddenRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Forbid or allow pulls of a topic by a group if ``readable`` is set; answer the resulting permission.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, TOPIC_NOT_EXIST, or INVALID_PARAMETER for an illegal
                name.
        """
        header = command.header
        check_existing_group(self.groups, header.group)
        existing_topic(self.topics, header.topic)
        if header.readable is not None:
            what = "allowed" if header.readable else "forbidden"
            log.info("group %s %s to read topic %s, by %s", header.group, what, header.topic, connection.remote_address)
            self.groups.update_forbidden(header.group, header.topic, INDEX_PERM_READ, forbid=not header.readable)
        readable = not self.groups.forbidden(header.group, header.topic) & 1 << INDEX_PERM_READ
        answer = response(remark="", body=GroupForbidden(header.topic, header.group, readable).encode())
        return answer_when_settled([self.groups.settled(header.group)], answer)

    @answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader)
    def query_topic_consume_by_who(
        self, _connection: Connection, command: RemotingCommand[QueryTopicConsumeByWhoRequestHeader]
    ) -> Command:
        """Answer the groups whose clients subscribe to the topic and those that have offsets in it, sorted.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        topic = command.header.topic
        check_known_topic(topic)
        groups = self.offsets.groups_of(topic).union(self.consumers.groups_subscribed_to(topic))
        return response(body=GroupList(sorted(groups)).encode())

    @answers(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader)
    def query_topics_by_consumer(
        self, _connection: Connection, command: RemotingCommand[QueryTopicsByConsumerRequestHeader]
    ) -> Command:
        """Answer the sorted topics, and the broker's address.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.group
        check_known_group(group)
        address = join_address(self.config.broker_ip1, self.config.listen_port)
        return response(body=TopicList(sorted(self.offsets.topics_of(group)), address).encode())

    @answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequestHeader)
    def query_subscription_by_consumer(
        self, _connection: Connection, command: RemotingCommand[QuerySubscriptionByConsumerRequestHeader]
    ) -> Command:
        """Answer the subscription of the group's clients, else that of its last pop, if any.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a name is illegal.
        """
        group, topic = command.header.group, command.header.topic
        check_known_group(group)
        if topic is None:
            return response(body=QuerySubscriptionResponseBody(group=group).encode())
        check_known_topic(topic)
        found = self.consumers.find_subscription_data(group, topic)
        return response(body=QuerySubscriptionResponseBody(found.data if found else None, group, topic).encode())


def _check(config: SubscriptionGroupConfig) -> None:
    check_group(config.group_name)
    if not 0 <= config.retry_queue_nums <= _MAX_RETRY_QUEUE_NUMS:
        remark = (
            f"the retryQueueNums {config.retry_queue_nums} of group {config.group_name} is illegal; "
            f"use 0 to {_MAX_RETRY_QUEUE_NUMS}"
        )
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
