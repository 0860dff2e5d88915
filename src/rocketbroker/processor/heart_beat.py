"""HEART_BEAT (34): registers the groups in which a client produces and consumes (ClientManageProcessor.heartBeat)."""

import asyncio
import logging
from collections.abc import Awaitable, Collection

from rocketbroker.auth.requester import Requester
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_group_info import SubscriptionLimit, SubscriptionSize, is_tag_type, size_of
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.persist.config_manager import Settled
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import (
    LEGACY_GROUP_MAX_LENGTH,
    RETRY_GROUP_TOPIC_PREFIX,
    is_topic_or_group_illegal,
)
from rocketbroker.codec.remoting.bodies.client import ConsumerData, ConsumeType, HeartbeatData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE
from rocketbroker.codec.remoting.handler import Audience, Buffer, Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_checks import check_client_group, read_body
from rocketbroker.processor.support.request_family import answers

# Compiling a filter takes about 5 µs for each character, plus 60 µs.
_CHARACTERS_TO_BEGIN = 12
# RocketMQ's names of languages have up to 7 characters.
LONGEST_LANGUAGE = 64


def check_length(config: BrokerConfig, body: Buffer) -> None:
    """Check the length of a heartbeat, before its body is read.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if it is too long.
    """
    _check_size("maxHeartbeatSize", len(body), "bytes", config.max_heartbeat_size)


class HeartbeatLimit:
    """Rejects a heartbeat as a whole before any of it is registered.

    The limits apply to the client with all its groups, including those that it joined by earlier heartbeats.

    Args:
        config: the limits.
        consumers: groups in which clients consume.
        producers: groups in which clients produce.
        subscription_groups: the groups that exist.

    Attributes:
        subscription: check of a single subscription.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        producers: ProducerManager,
        subscription_groups: SubscriptionGroupManager,
    ) -> None:
        self.subscription = SubscriptionLimit(config)
        self._config = config
        self._consumers = consumers
        self._producers = producers
        self._subscription_groups = subscription_groups

    def check_body(self, body: Buffer) -> None:
        """Check the length; see ``check_length``."""
        check_length(self._config, body)

    def check(self, connection: Connection, heartbeat: HeartbeatData, language: str) -> None:
        """Check the client's language, and the total that the client would have registered in the broker.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if it is too much.
        """
        config = self._config
        if len(language) > LONGEST_LANGUAGE:
            remark = (
                f"language: {len(language):,} characters exceed the limit of {LONGEST_LANGUAGE}; send the name of the "
                "client's language, such as JAVA or OTHER"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        _check_size(
            "maxClientIdLength", len(heartbeat.client_id), "characters of a clientID", config.max_client_id_length
        )
        consumed = {data.group_name for data in heartbeat.consumer_data_set}
        produced = {data.group_name for data in heartbeat.producer_data_set}
        others = self._consumers.groups_of(connection) - consumed
        other_producers = self._producers.groups_of(connection) - produced
        # Lists are counted, not distinct names: a repeated name takes as long as another.
        named = len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set)
        _check_size(
            "maxGroupsPerClient", named + len(others) + len(other_producers), "groups", config.max_groups_per_client
        )
        sizes = [size_of(data.subscription_data_set) for data in heartbeat.consumer_data_set]
        sizes += [self._size(group, connection) for group in others]
        count, characters = sum(size.topics for size in sizes), sum(size.characters for size in sizes)
        _check_size("maxSubscriptionsPerClient", count, "subscriptions", config.max_subscriptions_per_client)
        _check_size("maxHeartbeatSize", characters, "characters of subscriptions", config.max_heartbeat_size)
        if config.enable_property_filter:
            _check_size(
                "maxFilterLengthPerClient", _filter_length(heartbeat), "characters", config.max_filter_length_per_client
            )

    def may_consume(self, data: ConsumerData) -> bool:
        """Return false for a group that pulls on its own, while those are rejected."""
        return data.consume_type != ConsumeType.CONSUME_ACTIVELY or not self._config.reject_pull_consumer_enable

    def may_produce(self, group: str, connection: Connection) -> bool:
        """Return false for a producer that is left out as ``enableRegisterProducer`` says."""
        config = self._config
        if config.enable_register_producer or not config.reject_transaction_message:
            return True
        return group in self._producers.groups_of(connection)

    def no_room(self, connection: Connection, heartbeat: HeartbeatData) -> BrokerResponseError | None:
        """Return the error if the new groups of a heartbeat cannot be created, ``None`` if there is room for all."""
        consumed = {data.group_name for data in heartbeat.consumer_data_set}
        try:
            self._subscription_groups.check_room(
                sum(map(self._subscription_groups.creates, consumed)), connection.share
            )
        except BrokerResponseError as refusal:
            return refusal
        return None

    def _size(self, group: str, connection: Connection) -> SubscriptionSize:
        info = self._consumers.group_info(group)
        return SubscriptionSize(0, 0) if info is None else info.client_subscriptions.size(connection)


def _filter_length(heartbeat: HeartbeatData) -> int:
    """Count the characters of all filters, plus a fixed cost for each."""
    return sum(
        len(each.sub_string) + _CHARACTERS_TO_BEGIN
        for data in heartbeat.consumer_data_set
        for each in data.subscription_data_set
        if not is_tag_type(each.expression_type)
    )


def _check_size(name: str, found: int, what: str, limit: int) -> None:
    if found > limit:
        remark = f"{name}: {found:,} {what} exceed the limit of {limit:,}; use several clients or raise {name}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)


log = logging.getLogger(__name__)

# TopicSysFlag.buildSysFlag(false, true)
UNIT_SUB_FLAG = 2
_SHOWN = 64
# The retry topic of the longest group that brokers before 5.0 allowed.
_LONGEST_NAME = len(RETRY_GROUP_TOPIC_PREFIX) + LEGACY_GROUP_MAX_LENGTH
# Clients wait 3 s for the answer to a heartbeat, and then look up the route of their retry topic.
TOPIC_WAIT_S = 1.0


class HeartBeatProcessor:
    """Registers clients; creates the retry topic of each group that consumes.

    A client of 5.x may send its groups without their subscriptions and a fingerprint of them instead (heartbeat V2):
    it must send them again if the broker does not know them, or another client of the group has different ones.
    """

    def __init__(
        self,
        topic_configs: TopicConfigManager,
        subscription_groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        producers: ProducerManager,
        consumer_filters: ConsumerFilterManager,
        clock: Clock,
        limit: HeartbeatLimit,
    ) -> None:
        self._topic_configs = topic_configs
        self._subscription_groups = subscription_groups
        self._consumers = consumers
        self._producers = producers
        self._consumer_filters = consumer_filters
        self._clock = clock
        self._limit = limit

    @answers(RequestCode.HEART_BEAT, audience=Audience.CLIENT, asks=True)
    def heart_beat(
        self, connection: Connection, command: Command, requester: Requester | None = None
    ) -> Command | Awaitable[Command]:
        """Register a client's groups and create the retry topic of each group that consumes.

        The answer waits until new topics are on disk and registered, at most a second: a slow disk or a dead name
        server fails no heartbeat.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a body that is not a heartbeat, INVALID_PARAMETER for an illegal name
                of a group or topic, SUBSCRIPTION_PARSE_FAILED for a subscription that is too long,
                SUBSCRIPTION_GROUP_NOT_EXIST if there is no room for all new groups, NO_PERMISSION for a group of the
                broker's own; the other groups are registered nevertheless. A heartbeat beyond ``HeartbeatLimit``
                registers nothing.
        """
        self._limit.check_body(command.body)
        known = None if requester is None else requester.take_body()
        heartbeat = known if isinstance(known, HeartbeatData) else read_body(command.body, HeartbeatData)
        self._limit.check(connection, heartbeat, command.language)
        channel = ClientChannelInfo(
            connection, heartbeat.client_id, command.language, command.version, self._clock.monotonic()
        )
        if requester is not None:
            channel.may_publish = requester.may_publish
        no_room = self._limit.no_room(connection, heartbeat)
        consumed = [data for data in heartbeat.consumer_data_set if self._limit.may_consume(data)]
        refusals = [self._refusal(connection, data, no_room) for data in consumed]
        accepted = [data for data, refusal in zip(consumed, refusals, strict=True) if refusal is None]
        changed = [self._register_consumer(channel, data, heartbeat) for data in accepted]
        for producer in heartbeat.producer_data_set:
            if is_topic_or_group_illegal(producer.group_name) or len(producer.group_name) > _LONGEST_NAME:
                refusals.append(_illegal(producer.group_name))
            elif self._limit.may_produce(producer.group_name, connection):
                self._producers.register(producer.group_name, channel)
        if requester is not None:
            # Also if another group is rejected: those that are registered need their rights from now on.
            groups = self._consumers.groups_of(connection)
            requester.joined(heartbeat, [data for data in accepted if data.group_name in groups], groups)
        for refusal in filter(None, refusals):
            raise refusal
        sub_change = not heartbeat.heartbeat_fingerprint or any(changed)
        answer = response(header={"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": sub_change})
        topics = [RETRY_GROUP_TOPIC_PREFIX + data.group_name for data in heartbeat.consumer_data_set]
        made = {settled for topic in topics if (settled := self._topic_configs.settled(topic)) is not None}
        return _answer_with_topics(made, answer) if made else answer

    def _refusal(
        self, connection: Connection, data: ConsumerData, no_room: BrokerResponseError | None
    ) -> BrokerResponseError | None:
        """Return the reason not to register a group, ``None`` to register it.

        Args:
            connection: the client.
            data: the group.
            no_room: reason not to register it if it is new.
        """
        names = [data.group_name, *(subscription.topic for subscription in data.subscription_data_set)]
        for name in names:
            if is_topic_or_group_illegal(name) or len(name) > _LONGEST_NAME:
                return _illegal(name)
        try:
            check_client_group(data.group_name, connection)
            for subscription in data.subscription_data_set:
                self._limit.subscription.check_data(subscription)
        except BrokerResponseError as refusal:
            return refusal
        return no_room if self._subscription_groups.creates(data.group_name) else None

    def _register_consumer(self, channel: ClientChannelInfo, data: ConsumerData, heartbeat: HeartbeatData) -> bool:
        """Register one group; return true if the client must send its subscriptions again."""
        group = self._subscription_groups.find(data.group_name, channel.connection.share)
        if group is None:
            log.debug("%r consumes in the group %s, which does not exist", channel, data.group_name)
            return False
        retry_topic = RETRY_GROUP_TOPIC_PREFIX + data.group_name
        # Without a retry topic the group consumes nevertheless, and what it sends back is rejected.
        if self._topic_configs.may_create(retry_topic, channel.connection.share):
            self._topic_configs.create_in_send_message_back(
                retry_topic,
                group.retry_queue_nums,
                PERM_READ_WRITE,
                UNIT_SUB_FLAG if data.unit_mode else 0,
                order=any(self._topic_configs.is_order_topic(each.topic) for each in data.subscription_data_set),
                share=channel.connection.share,
            )
        info = self._consumers.group_info(data.group_name)
        subscribed = info is not None and bool(info.subscription_table)
        self._consumers.register(
            channel,
            data,
            notify_enabled=group.notify_consumer_ids_changed_enable,
            update_subscription=not heartbeat.without_sub,
        )
        if not heartbeat.without_sub:
            self._consumer_filters.register(data.group_name, data.subscription_data_set)
        known = info.heartbeat_fingerprint if info is not None else heartbeat.heartbeat_fingerprint
        self._consumers.groups[data.group_name].heartbeat_fingerprint = heartbeat.heartbeat_fingerprint
        return known != heartbeat.heartbeat_fingerprint or (heartbeat.without_sub and not subscribed)


async def _answer_with_topics(made: Collection[Settled], answer: Command) -> Command:
    """Answer when the topics are settled, with or without success, or when the wait is over."""
    await asyncio.wait(made, timeout=TOPIC_WAIT_S)
    return answer


def _illegal(name: str) -> BrokerResponseError:
    remark = f"the group or topic {name[:_SHOWN]!r} has illegal characters; use ^[%|a-zA-Z0-9_-]+$"
    if len(name) > _LONGEST_NAME:
        remark = (
            f"the group or topic {name[:_SHOWN]!r}... has {len(name):,} characters; at most {_LONGEST_NAME} are allowed"
        )
    return BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
