"""Requests of brokers to consumers and producers (org.apache.rocketmq.client.impl.ClientRemotingProcessor)."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from rocketbroker.client.request_reply import PendingReplies, reply_message
from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
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
