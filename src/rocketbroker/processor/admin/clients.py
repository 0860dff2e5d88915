"""Connected clients, and requests passed on to them (AdminBrokerProcessor)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rocketbroker.auth.policies import Action
from rocketbroker.auth.requester import Requester
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_manager import ASKS_FROM_VERSION, ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.bodies.client import Connection as ConnectionEntry
from rocketbroker.codec.remoting.bodies.client import (
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketbroker.codec.remoting.bodies.offset import GetConsumerStatusBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    GetConsumerStatusRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import (
    BrokerResponseError,
    CodecError,
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    shown,
)
from rocketbroker.processor.support.found_messages import check_found_record
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare
from rocketbroker.processor.support.request_checks import MOST_VALUES, check_known_group, check_known_topic
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.read.message_queries import MessageQueries

_SUB: Final = (Action.SUB,)
# Time for a client to answer, as in Broker2Client.
TIMEOUT_S = 10.0


class ConsumerCalls:
    """Asks consumers, each with a few requests at a time: an unanswered request is kept for 10 s.

    Args:
        config: ``maxCallsPerConsumer``.
        consumers: the consumers.
    """

    def __init__(self, config: BrokerConfig, consumers: ConsumerManager) -> None:
        self._config = config
        self._consumers = consumers
        self._under_way: Counter[Connection] = Counter()

    def check(self, group: str, client_id: str) -> Connection:
        """Return the connection of a client that can be asked; call this before anything is read for it.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the client is not connected; SYSTEM_BUSY if it has too many open
                requests.
        """
        channel = self._consumers.find_channel(group, client_id)
        who = f"<{group}> <{shown(client_id)}>"
        if channel is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        if channel.connection.is_behind:
            remark = f"consumer {who} reads its connection too slowly (writeBufferHighWaterMark); ask again later"
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        limit = self._config.max_calls_per_consumer
        if self._under_way[channel.connection] >= limit:
            remark = (
                f"maxCallsPerConsumer: consumer {who} has not answered {limit:,} requests yet; ask again later or "
                "raise maxCallsPerConsumer"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        return channel.connection

    async def call(self, group: str, client_id: str, command: Command) -> Command:
        """Return the client's answer to ``command``.

        Raises:
            BrokerResponseError: See ``check``; SYSTEM_ERROR if its connection was lost; CONSUME_MSG_TIMEOUT if it did
                not answer in 10 s.
        """
        connection = self.check(group, client_id)
        who = f"consumer <{group}> <{shown(client_id)}>"
        self._under_way[connection] += 1
        try:
            answer = await connection.invoke(command, TIMEOUT_S)
        except RemotingTimeoutError as error:
            raise BrokerResponseError(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {error}") from error
        except RemotingSendError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {error}") from error
        finally:
            self._end(connection)
        return response(answer.code, answer.remark, answer.header, bytes(answer.body))

    def _end(self, connection: Connection) -> None:
        self._under_way[connection] -= 1
        if not self._under_way[connection]:
            del self._under_way[connection]


Offsets = dict[MessageQueue, int]
# Time for each client to answer, as in Broker2Client.
STATUS_TIMEOUT_S = 5.0
# Clients asked in one turn of the event loop.
_AT_A_TIME = 100


@dataclass(frozen=True, slots=True)
class ClientRequests:
    """Requests about connected clients, some of which are passed on to them."""

    consumers: ConsumerManager
    encoder: AnswerEncoder
    producers: ProducerManager
    clock: Clock
    calls: ConsumerCalls
    broker_name: str
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    queries: MessageQueries

    @answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader)
    async def get_consumer_connection_list(
        self, _connection: Connection, command: RemotingCommand[GetConsumerConnectionListRequestHeader]
    ) -> Command:
        """Answer the group as of its clients' last heartbeats; the remark names what they disagree about.
        CONSUMER_NOT_ONLINE for a group without clients.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.consumer_group
        check_known_group(group)
        info = self.consumers.group_info(group)
        if info is None:
            return response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            connection_set=_entries(info.channels.values()),
            subscription_table={topic: known.data for topic, known in info.subscription_table.items()},
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )
        return response(
            remark=info.client_subscriptions.conflict or None, body=await self.encoder.encode(body, len(info.channels))
        )

    @answers(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader)
    async def get_producer_connection_list(
        self, _connection: Connection, command: RemotingCommand[GetProducerConnectionListRequestHeader]
    ) -> Command:
        """Answer the producers that sent a heartbeat for the group. SYSTEM_ERROR for a group without clients,
        as in RocketMQ.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.producer_group
        check_known_group(group)
        channels = self.producers.groups.get(group)
        if channels is None:
            return response(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(_entries(channels.values()))
        return response(body=await self.encoder.encode(body, len(channels)))

    @answers(RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader)
    async def get_all_producer_info(self, _connection: Connection, _command: Command) -> Command:
        """Answer each producer with its address and the time of its last heartbeat.

        ``remoteIP`` begins with a slash, as Java writes addresses.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many producers for one answer.
        """
        groups = self.producers.groups
        count = sum(map(len, groups.values()))
        self.encoder.check(count)
        share = LoopShare()
        table = {}
        for group, channels in list(groups.items()):
            table[group] = [self._info(channel) for channel in list(channels.values())]
            await share.turn()
        return response(body=await self.encoder.encode(ProducerTableInfo(table), count))

    def _info(self, channel: ClientChannelInfo) -> ProducerInfo:
        silent_s = self.clock.monotonic() - channel.last_update
        heard_ms = self.clock.time_ms() - round(silent_s * 1000)
        address = "/" + channel.connection.remote_address
        return ProducerInfo(channel.client_id, address, channel.language, channel.version, heard_ms)

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader)
    async def get_consumer_running_info(
        self, _connection: Connection, command: RemotingCommand[GetConsumerRunningInfoRequestHeader]
    ) -> Command:
        """Pass the request on to the client that it names.

        Raises:
            BrokerResponseError: The client is not connected or does not answer; INVALID_PARAMETER if the group is
                illegal.
        """
        header = command.header
        check_known_group(header.consumer_group)
        question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return await self.calls.call(header.consumer_group, header.client_id, question)

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequestHeader, asks=True)
    async def consume_message_directly(
        self,
        _connection: Connection,
        command: RemotingCommand[ConsumeMessageDirectlyResultRequestHeader],
        requester: Requester | None = None,
    ) -> Command:
        """Pass the request on to the client that it names, with the message and the flags of topic and group.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the group or the id is illegal; SYSTEM_ERROR if there is no such
                message or client; NO_PERMISSION for a message of a topic that the user may not read; SYSTEM_BUSY if the
                client has too many open requests; CONSUME_MSG_TIMEOUT if it does not answer.
        """
        header = command.header
        check_known_group(header.consumer_group)
        # Checked first: the message may be long, and reading it blocks the loop.
        self.calls.check(header.consumer_group, header.client_id or "")
        record = self._record(header.msg_id or "")
        check_found_record(requester, record, _SUB, header.consumer_group)
        question = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._for_client(header), record)
        return await self.calls.call(header.consumer_group, header.client_id or "", question)

    def _record(self, msg_id: str) -> bytes:
        try:
            offset = decode_message_id(msg_id).offset
        except CodecError as error:
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"msgId of the request: {error}") from None
        record = self.queries.queued_message(offset)
        if record is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    def _for_client(
        self, header: ConsumeMessageDirectlyResultRequestHeader
    ) -> ConsumeMessageDirectlyResultRequestHeader:
        topic = self.topics.select(header.topic or "")
        # Only looked up: a request must not create a missing group.
        group = self.groups.groups.get(header.consumer_group)
        return msgspec.structs.replace(
            header,
            broker_name=self.broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.topic_sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.group_sys_flag,
        )

    @answers(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader)
    async def invoke_broker_to_get_consumer_status(
        self, _connection: Connection, command: RemotingCommand[GetConsumerStatusRequestHeader]
    ) -> Command:
        """Ask all clients, or the one named, by GET_CONSUMER_STATUS_FROM_CLIENT (221).

        The answer has the offsets of the clients that replied; the remark names the others.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for an illegal name; SYSTEM_ERROR if there is no such
                client, one is too old, or none has answered.
        """
        header = command.header
        check_known_group(header.group)
        check_known_topic(header.topic)
        channels = self._channels(header)
        question = GetConsumerStatusRequestHeader(header.topic, header.group)
        asked = (_ask(channel, question, index // _AT_A_TIME) for index, channel in enumerate(channels))
        answers = await asyncio.gather(*asked)
        by_client = {channel.client_id: answer for channel, answer in zip(channels, answers, strict=True)}
        found = {client_id: answer for client_id, answer in by_client.items() if isinstance(answer, dict)}
        silent = "; ".join(f"{client_id}: {why}" for client_id, why in by_client.items() if isinstance(why, str))
        if not found:
            remark = f"no client of group {header.group} has reported its offsets: {silent}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        return response(
            remark=f"clients that have not reported their offsets: {silent}" if silent else None,
            body=GetConsumerStatusBody(consumer_table=found).encode(),
        )

    def _channels(self, header: GetConsumerStatusRequestHeader) -> Sequence[ClientChannelInfo]:
        info = self.consumers.group_info(header.group)
        if info is None:
            raise _refusal(f"No Any Consumer online in the consumer group: [{header.group}]")
        named = (header.client_addr or "").strip()
        channels = [channel for channel in info.channels.values() if not named or channel.client_id == named]
        if not channels:
            raise _refusal(f"The Consumer <{header.group}> <{named}> not online")
        for channel in channels:
            if channel.version < ASKS_FROM_VERSION:
                raise _refusal(
                    f"the client does not support this feature. version={channel.version} of {channel!r}; "
                    f"use {ASKS_FROM_VERSION} (V3_0_7_SNAPSHOT) or later"
                )
        return channels


async def _ask(channel: ClientChannelInfo, question: GetConsumerStatusRequestHeader, turns: int) -> Offsets | str:
    """Return the offsets that a client reports, or its error; ask it after ``turns`` turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    command = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question)
    try:
        answer = await channel.connection.invoke(command, STATUS_TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            return GetConsumerStatusBody.decode(answer.body, most_values=MOST_VALUES).message_queue_table
    except (RemotingError, CodecError) as error:
        return str(error)
    return f"code {answer.code}, {answer.remark}"


def _refusal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)


def _entries(channels: Iterable[ClientChannelInfo]) -> list[ConnectionEntry]:
    return [
        ConnectionEntry(channel.client_id, channel.connection.remote_address, channel.language, channel.version)
        for channel in channels
    ]
