"""Requests of brokers to this client, and the replies that they push (ClientRemotingProcessor, RequestFutureHolder)."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MESSAGE_TTL,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_PRODUCER_GROUP,
)
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.topic_validator import REPLY_TOPIC_POSTFIX
from rocketbroker.codec.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketbroker.codec.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketbroker.codec.remoting.handler import Answer, Connection, MethodTable, Route
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    CheckTransactionStateRequestHeader,
    GetConsumerStatusRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)

_COPIED = (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_MESSAGE_TTL)


class Question(Protocol):
    """Received message that may ask for a reply."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""


class PendingReplies:
    """Questions of one client that wait for their replies, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def open(self) -> tuple[str, asyncio.Future[MessageExt]]:
        """Return a new correlation id, and the future of its reply; ``close`` it afterwards."""
        correlation_id = str(uuid.uuid4())
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return correlation_id, reply

    def close(self, correlation_id: str) -> None:
        """Ignore a later reply."""
        self._waiting.pop(correlation_id, None)

    def take(self, reply: MessageExt) -> bool:
        """Give a reply to its question; return false if no question waits for it."""
        waiting = self._waiting.get(reply.get_property(PROPERTY_CORRELATION_ID) or "")
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True


def question_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """Return the properties that ask for a reply to a client."""
    return {
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
        PROPERTY_MESSAGE_TTL: str(round(timeout_s * 1000)),
    }


def reply_topic(question: Question) -> str:
    """Return the topic of the reply to a question.

    Raises:
        InvalidMessageError: The message asks for no reply.
    """
    return f"{_asked(question, PROPERTY_CLUSTER)}{REPLY_TOPIC_POSTFIX}"


def reply_properties(question: Question) -> Mapping[str, str]:
    """Return the properties of the reply to a question.

    Raises:
        InvalidMessageError: The message asks for no reply.
    """
    return {PROPERTY_MESSAGE_TYPE: "reply"} | {name: _asked(question, name) for name in _COPIED}


def _asked(question: Question, name: str) -> str:
    value = question.properties.get(name)
    if not value:
        raise InvalidMessageError(f"the message asks for no reply: it has no property {name}")
    return value


def reply_message(header: ReplyMessageRequestHeader, body: bytes) -> MessageExt:
    """Return the message that a broker pushes as a reply.

    Raises:
        CodecError: The body cannot be decompressed, or an address is wrong.
    """
    text = decompress(body, header.sys_flag) if header.sys_flag & COMPRESSED_FLAG else body
    return MessageExt(
        header.topic,
        header.queue_id,
        0,
        0,
        0,
        text,
        header.properties.encode(),
        header.flag,
        header.sys_flag,
        0,
        header.born_timestamp,
        _host(header.born_host),
        header.store_timestamp,
        _host(header.store_host),
        header.reconsume_times,
        0,
        len(body),
        0,
    )


def _host(text: str) -> bytes:
    ip, _, port = text.removeprefix("/").rpartition(":")
    return host_bytes(ip.strip("[]"), int(port) if port.isdigit() else 0)


# Called with a half message, the broker's request about it, and the connection for the outcome.
TransactionCheck = Callable[[MessageExt, CheckTransactionStateRequestHeader, Connection], None]


class ConsumerInner(Protocol):
    """Consumer that answers brokers (MQConsumerInner)."""

    def rebalance_soon(self) -> None:
        """Rebalance: members have joined or left."""

    def connection_lost(self) -> None:
        """React to the loss of a connection, after which a broker knows neither client nor locks."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues of a topic at other offsets."""

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumed offsets of a topic."""

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer."""

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Consume one message and return the result.

        Raises:
            BrokerResponseError: the consumer has no handler.
        """


class ClientRemotingProcessor:
    """Passes requests of brokers to the consumers and producers of one client.

    Attributes:
        consumers: consumers by group.
        transaction_checks: checks of transactions by producer group.
        replies: questions that wait for replies.
    """

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerInner] = {}
        self.transaction_checks: dict[str, TransactionCheck] = {}
        self.replies = PendingReplies()

    def routes(self) -> dict[int, Route]:
        """Return the handlers by request code."""
        table = MethodTable()
        table.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notify, NotifyConsumerIdsChangedRequestHeader)
        table.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset, ResetOffsetRequestHeader)
        table.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status, GetConsumerStatusRequestHeader)
        table.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info, GetConsumerRunningInfoRequestHeader)
        table.add(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            self._consume_directly,
            ConsumeMessageDirectlyResultRequestHeader,
            takes_large_bodies=True,
        )
        table.add(
            RequestCode.CHECK_TRANSACTION_STATE,
            self._check_transaction,
            CheckTransactionStateRequestHeader,
            takes_large_bodies=True,
        )
        table.add(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._take_reply,
            ReplyMessageRequestHeader,
            takes_large_bodies=True,
        )
        return table.routes

    def rebalance_soon(self) -> None:
        """Let all consumers rebalance."""
        for consumer in self.consumers.values():
            consumer.rebalance_soon()

    def connection_lost(self) -> None:
        """Tell all consumers that a connection was lost."""
        for consumer in self.consumers.values():
            consumer.connection_lost()

    def _notify(
        self, _connection: Connection, command: RemotingCommand[NotifyConsumerIdsChangedRequestHeader]
    ) -> Answer:
        consumer = self.consumers.get(command.header.consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()
        return response()

    async def _reset(self, _connection: Connection, command: RemotingCommand[ResetOffsetRequestHeader]) -> Command:
        offsets = ResetOffsetBody.decode(command.body).offset_table
        await self._consumer(command.header.group).reset_offsets(command.header.topic, offsets)
        return response()

    def _status(self, _connection: Connection, command: RemotingCommand[GetConsumerStatusRequestHeader]) -> Answer:
        offsets = self._consumer(command.header.group).consumer_status(command.header.topic)
        return response(body=GetConsumerStatusBody(offsets).encode())

    def _running_info(
        self, _connection: Connection, command: RemotingCommand[GetConsumerRunningInfoRequestHeader]
    ) -> Answer:
        header = command.header
        return response(
            body=self._consumer(header.consumer_group).running_info(with_stacks=header.jstack_enable).encode()
        )

    async def _consume_directly(
        self, _connection: Connection, command: RemotingCommand[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Command:
        header = command.header
        consumer = self._consumer(header.consumer_group)
        message = decode_messages(command.body)[0]
        return response(body=(await consumer.consume_directly(message, header.broker_name or "")).encode())

    def _check_transaction(
        self, connection: Connection, command: RemotingCommand[CheckTransactionStateRequestHeader]
    ) -> Answer:
        message = decode_messages(bytes(command.body))[0]
        check = self.transaction_checks.get(message.get_property(PROPERTY_PRODUCER_GROUP) or "")
        if check is None:
            log.warning("no producer of this client can check transaction %s", command.header.transaction_id)
        else:
            check(message, command.header, connection)
        return response()

    def _take_reply(self, _connection: Connection, command: RemotingCommand[ReplyMessageRequestHeader]) -> Answer:
        reply = reply_message(command.header, bytes(command.body))
        if not self.replies.take(reply):
            log.warning("a reply of %s came too late, or twice: %.500r", reply.born_host_text, reply.properties)
        return response()

    def _consumer(self, group: str) -> ConsumerInner:
        consumer = self.consumers.get(group)
        if consumer is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"no consumer of group {group} in this client")
        return consumer
