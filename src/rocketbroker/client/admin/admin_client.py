"""Administration of topics, groups and brokers (org.apache.rocketmq.tools.admin.DefaultMQAdminExt)."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from rocketbroker.client.admin.admin_connection import address_in, addresses_of
from rocketbroker.client.admin.auth_admin import AuthAdmin
from rocketbroker.client.admin.cluster_admin import ClusterAdmin
from rocketbroker.client.admin.message_admin import MessageAdmin
from rocketbroker.client.admin.table_admin import TableAdmin
from rocketbroker.client.core.errors import ClientError, GroupNotConsumedError, TopicRouteError
from rocketbroker.client.core.message import check_group
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, GetConsumerStatusBody, ResetOffsetBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError, RocketBrokerError

_NO_END = 2**63 - 1


class AdminClient(ClusterAdmin, MessageAdmin, TableAdmin, AuthAdmin):
    """Admin client of name servers and brokers.

    Every method may raise NameServerError, RemotingError and BrokerResponseError.

    Args:
        config: ``host:port`` of the name servers, joined by ``;``, or the settings of the connections.
        timeout_s: limit for each request; by default that of the settings, or 5 s without settings.
    """

    # -- cleaning

    async def clean_expired_consumer_queue(self, address: str) -> None:
        """Remove queue and index files without messages on a broker, and wait for it."""
        await self._ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topic(self, address: str) -> None:
        """Remove the queues of unknown topics on a broker, and wait for it."""
        await self._ask(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_commit_log(self, address: str) -> None:
        """Remove expired CommitLog files on a broker soon."""
        await self._ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    # -- consumers

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, as reported by one of its brokers."""
        route = await self.examine_topic_route_info(topic)
        for address in addresses_of(route.broker_datas):
            header = QueryTopicConsumeByWhoRequestHeader(topic)
            answer = await self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            return GroupList.decode(answer.body).group_list
        return []

    async def examine_consume_stats(
        self,
        group: str,
        topic: str | None = None,
        route_topic: str | None = None,
        *,
        addresses: Sequence[str] | None = None,
        failures: dict[str, RocketBrokerError] | None = None,
    ) -> ConsumeStats:
        """Return the progress of a group in each queue, of one ``topic`` or of all.

        It is empty if the group exists, some brokers are in ``failures``, and no other one has an offset of it.

        Args:
            group: the group.
            topic: the only topic to look at.
            route_topic: topic or cluster whose route to use, for an LMQ.
            addresses: the brokers to ask; by default those of the group's route.
            failures: takes the errors of brokers by address, if another one answers; without it they are raised.

        Raises:
            GroupNotConsumedError: the group exists, all brokers answer, and none has an offset or a retry topic of it.
            TopicRouteError: there is no such group, and ``topic`` (or ``route_topic``) has no route either.
        """
        check_group(group)

        async def ask(address: str) -> ConsumeStats:
            header = GetConsumeStatsRequestHeader(group, topic)
            return ConsumeStats.decode((await self._ask(address, RequestCode.GET_CONSUME_STATS, header)).body)

        no_route = None
        if addresses is None:
            try:
                addresses = addresses_of((await self._group_route(group, topic, route_topic)).broker_datas)
            except TopicRouteError as error:
                # A client that sends no heartbeats, or a reset, leaves offsets without a retry topic.
                addresses, no_route = await self._all_brokers(), error
        total = ConsumeStats()
        answers = await self._of_each(addresses, ask, failures)
        for stats in answers:
            total.offset_table.update(stats.offset_table)
            total.consume_tps += stats.consume_tps
        # A broker that did not answer may have the offsets of a group that exists.
        may_be_elsewhere = isinstance(no_route, GroupNotConsumedError) and len(answers) < len(addresses)
        if no_route is not None and not total.offset_table and not may_be_elsewhere:
            raise no_route
        return total

    async def _group_route(self, group: str, *others: str | None) -> TopicRouteData:
        """Return the route of a group's retry topic, else the first there is of ``others``.

        Raises:
            GroupNotConsumedError: there is none, though a broker knows the group.
            TopicRouteError: there is none, and no broker that answers knows the group.
        """
        try:
            return await super()._group_route(group, *others)
        except TopicRouteError as error:
            known, failed = [], []
            for address in await self._all_brokers():
                try:
                    groups = (await self.get_all_subscription_group(address)).subscription_group_table
                    known += [address] * (group in groups)
                except RocketBrokerError as why:
                    failed.append(f"; broker {address} did not tell: {why}")
            if known:
                raise GroupNotConsumedError(
                    f"consumer group {group!r} exists at {', '.join(known)}, but no consumer of it has come yet, so "
                    f"that it has no retry topic; start one{''.join(failed)}"
                ) from error
            raise TopicRouteError(f"{error}{''.join(failed)}") from error

    async def _all_brokers(self) -> list[str]:
        """Return one address of each registered broker."""
        return addresses_of([*(await self.examine_broker_cluster_info()).broker_addr_table.values()])

    async def examine_consumer_connection_info(self, group: str) -> ConsumerConnection:
        """Return the clients of a group; BrokerResponseError with CONSUMER_NOT_ONLINE when there are none."""
        return (await self.examine_consumers(group))[0]

    async def examine_consumers(self, group: str, address: str | None = None) -> tuple[ConsumerConnection, str]:
        """Return the clients of a group, and the conflict of their subscriptions, which Apache's broker does not name.

        Args:
            group: the group.
            address: address of the broker to ask; by default one that the group consumes from.

        Raises:
            BrokerResponseError: CONSUMER_NOT_ONLINE; the group has no clients.
        """
        header = GetConsumerConnectionListRequestHeader(group)
        if address is None:
            answer = await self._ask_first(group, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        else:
            answer = await self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return ConsumerConnection.decode(answer.body), answer.remark or ""

    async def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False, address: str | None = None
    ) -> ConsumerRunningInfo:
        """Return the state that a client of a group reports.

        Args:
            group: the group.
            client_id: the client.
            jstack: with the stacks of its threads.
            address: address of the broker to ask; by default one that the group consumes from.
        """
        header = GetConsumerRunningInfoRequestHeader(group, client_id, jstack)
        if address is None:
            answer = await self._ask_first(group, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        else:
            answer = await self._ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.decode(answer.body)

    async def assigned_queues(self, group: str, client_id: str) -> list[MessageQueue]:
        """Return the queues that a client of a group consumes now, as the client reports."""
        return list((await self.get_consumer_running_info(group, client_id)).mq_table)

    async def get_consume_status(
        self, topic: str, group: str, client_id: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets that the clients of a group, or one of them, report; by client id."""
        header = GetConsumerStatusRequestHeader(topic, group, client_id)
        answer = await self._ask_first(group, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        return GetConsumerStatusBody.decode(answer.body).consumer_table

    # -- offsets

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True, route_topic: str | None = None
    ) -> dict[MessageQueue, int]:
        """Move a group to a time, -1 to the ends of the queues; return the new offsets.

        Without ``force`` it goes back only.
        """
        route = await self.examine_topic_route_info(route_topic or topic)
        header = ResetOffsetRequestHeader(group, topic, timestamp_ms, force)
        found: dict[MessageQueue, int] = {}
        for address in addresses_of(route.broker_datas):
            found |= await self._reset(address, header)
        return found

    async def reset_offset_by_queue_id(
        self, address: str, group: str, topic: str, queue_id: int, *, offset: int = -1, timestamp_ms: int = -1
    ) -> dict[MessageQueue, int]:
        """Move a group to an offset of one queue of a broker, or to a time there; return the new offsets."""
        return await self._reset(address, ResetOffsetRequestHeader(group, topic, timestamp_ms, True, queue_id, offset))

    async def clone_group_offset(self, src_group: str, dest_group: str, topic: str, *, offline: bool = False) -> None:
        """Copy the offsets of one group in a topic to another; ``offline``: even if no client consumes it."""
        header = CloneGroupOffsetRequestHeader(src_group, dest_group, topic, offline)
        route = await self.examine_topic_route_info(topic)
        for address in addresses_of(route.broker_datas):
            await self._ask(address, RequestCode.CLONE_GROUP_OFFSET, header)

    async def _reset(self, address: str, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        answer = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return ResetOffsetBody.decode(answer.body).offset_table

    # -- messages

    async def view_message(self, offset_msg_id: str, topic: str | None = None) -> MessageExt:
        """Return the message with an offset message id, from the broker that the id names.

        Raises:
            CodecError: the id is invalid.
        """
        header = ViewMessageRequestHeader(decode_message_id(offset_msg_id).offset, topic)
        answer = await self._ask(address_in(offset_msg_id), RequestCode.VIEW_MESSAGE_BY_ID, header)
        return decode_messages(answer.body)[0]

    async def find_message(self, topic: str, msg_id: str, route_topic: str | None = None) -> MessageExt:
        """Return the message with an id of either kind: an offset message id or a unique id (which look alike).

        Args:
            topic: the topic.
            msg_id: the id.
            route_topic: topic or cluster whose route to use, for an LMQ.

        Raises:
            ClientError: no such message.
        """
        try:
            address = address_in(msg_id)
        except CodecError:
            address = None
        if address is not None and await self.broker_names_at(address):
            return await self.view_message(msg_id, topic)
        found = await self.query_message(topic, msg_id, index_type="U", route_topic=route_topic)
        if not found:
            raise ClientError(f"topic {topic} has no message with this id")
        return found[0]

    async def query_message(  # noqa: PLR0913 - the fields of the request
        self,
        topic: str,
        key: str,
        *,
        index_type: str = "K",
        max_num: int = 32,
        begin_ms: int = 0,
        end_ms: int = _NO_END,
        last_key: str | None = None,
        route_topic: str | None = None,
        addresses: Sequence[str] | None = None,
    ) -> list[MessageExt]:
        """Return the messages of a topic with a key (``index_type`` K), a unique id (U) or a tag (T), by store time.

        Args:
            topic: the topic.
            key: key, unique id or tag.
            index_type: what the key is. Only a broker of Apache RocketMQ with an index in RocksDB finds tags.
            max_num: at most so many messages of each broker, which has a limit of its own (defaultQueryMaxNum).
            begin_ms: earliest store time in ms.
            end_ms: latest store time in ms.
            last_key: index key to continue after, for an index in RocksDB.
            route_topic: topic or cluster whose route to use, for an LMQ.
            addresses: the brokers to ask; by default those of the route.
        """
        if addresses is None:
            addresses = addresses_of((await self.examine_topic_route_info(route_topic or topic)).broker_datas)
        found: list[MessageExt] = []
        for address in addresses:
            header = QueryMessageRequestHeader(
                topic, key, max_num, begin_ms, end_ms, index_type, last_key, unique_key_query=index_type == "U"
            )
            answer = await self._invoke(address, client_request(RequestCode.QUERY_MESSAGE, header))
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                found += decode_messages(check_success(answer).body)
        # The index knows a hash of the key only.
        matching = [message for message in found if message.topic == topic and key in looked_up_by(message, index_type)]
        return sorted(matching, key=lambda message: message.store_timestamp)


def looked_up_by(message: MessageExt, index_type: str) -> list[str | None]:
    """Return the text that a message is found by in an index of that type."""
    if index_type == "U":
        return [message.uniq_key]
    return [message.tags] if index_type == "T" else [*message.keys, message.uniq_key]


class TrackType(StrEnum):
    """State of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, rename="camel", frozen=True):
    """One group and a message; ``exception_desc`` says why it is not known better."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None

    def __str__(self) -> str:
        reason = self.exception_desc or "null"
        fields = f"consumerGroup={self.consumer_group}, trackType={self.track_type}, exceptionDesc={reason}"
        return f"MessageTrack [{fields}]"


async def message_track_detail(admin: AdminClient, message: MessageExt) -> list[MessageTrack]:
    """Return the state of a message in each group that consumes its topic."""
    groups = await admin.query_topic_consume_by_who(message.topic)
    return [await _track(admin, message, group) for group in sorted(groups)]


async def _track(admin: AdminClient, message: MessageExt, group: str) -> MessageTrack:
    try:
        clients = await admin.examine_consumer_connection_info(group)
        return MessageTrack(group, await _track_type(admin, message, group, clients))
    except BrokerResponseError as error:
        offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
        kind = TrackType.NOT_ONLINE if offline else TrackType.UNKNOWN
        return MessageTrack(group, kind, f"CODE:{error.code} DESC:{error.remark}")
    except TopicRouteError as error:
        return MessageTrack(group, TrackType.UNKNOWN, str(error))


async def _track_type(admin: AdminClient, message: MessageExt, group: str, clients: ConsumerConnection) -> TrackType:
    if clients.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackType.PULL
    if clients.message_model is MessageModel.BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    if not await _consumed(admin, message, group):
        return TrackType.NOT_CONSUME_YET
    subscription = clients.subscription_table.get(message.topic)
    tags = set(subscription.tags_set) if subscription is not None else set()
    return TrackType.CONSUMED if not tags or "*" in tags or message.tags in tags else TrackType.CONSUMED_BUT_FILTERED


async def _consumed(admin: AdminClient, message: MessageExt, group: str) -> bool:
    """Return true if the group has committed an offset after the message, on the broker that stored it."""
    stats = await admin.examine_consume_stats(group, message.topic)
    names = await admin.broker_names_at(message.store_host_text)
    return any(
        queue.topic == message.topic
        and queue.queue_id == message.queue_id
        and queue.broker_name in names
        and offsets.consumer_offset > message.queue_offset
        for queue, offsets in stats.offset_table.items()
    )
