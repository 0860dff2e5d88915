"""Producer of transactional messages (org.apache.rocketmq.client.producer.TransactionMQProducer)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeVar, Unpack

import msgspec

from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import HandlerError, InvalidMessageError
from rocketbroker.client.core.message import Message, MessageType, SendResult, SendStatus
from rocketbroker.client.core.options import checked
from rocketbroker.client.core.requests import client_request
from rocketbroker.client.producer.producer import Producer, ProducerOptions
from rocketbroker.codec.message.message_const import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)

T = TypeVar("T", Message, MessageExt)


class LocalTransactionState(IntEnum):
    """Outcome of a local transaction; the broker asks again for one that is UNKNOWN."""

    COMMIT_MESSAGE = TRANSACTION_COMMIT_TYPE
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK_TYPE
    UNKNOWN = TRANSACTION_NOT_TYPE


class TransactionSendResult(SendResult, frozen=True):
    """Result of a transactional send."""

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOWN


Outcome = LocalTransactionState | Awaitable[LocalTransactionState]


class TransactionProducer(Producer):
    """Producer whose messages consumers see only after the commit of a local transaction.

    Args:
        group: the producer group. Any of its members may be asked for the outcome of a transaction.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        check: called with a message whose outcome the broker does not know: look it up in your database. Coroutine
            functions run on the event loop, others in a thread.
        client: an instance to share with others, which its owner starts and stops.
        options: the settings of ``ProducerOptions``.
    """

    @checked
    def __init__(
        self,
        group: str,
        config: str | ClientConfig = "",
        *,
        check: Callable[[MessageExt], Outcome],
        client: ClientInstance | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(group, config, client=client, clock=clock, **options)
        self._check = check
        self._tasks = TaskOwner(f"transaction-producer-{group}")

    def _join(self) -> None:
        self._client.register_transaction_checks(self.group, self._check_soon)
        super()._join()

    async def _leave(self) -> None:
        self._client.unregister_transaction_checks(self.group)
        await stop_all(self._tasks.stop, super()._leave)

    async def send_in_transaction(
        self, message: Message, execute: Callable[[Message], Outcome], *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll the message back.

        Args:
            message: the message; it cannot be delayed, nor have a priority.
            execute: the local transaction, called once the broker has the half message. Coroutine functions run on the
                event loop, others in a thread. If it raises, the outcome is UNKNOWN and the error is raised here.
            timeout_s: time limit of the send instead of ``send_timeout_s``.

        Raises:
            HandlerError: The local transaction returned no LocalTransactionState.
            ClientError, BrokerResponseError, RemotingError: As in ``send``; the local transaction has not run.
        """
        if message.is_delayed:
            raise InvalidMessageError("a transactional message cannot be delayed; leave its delay out")
        if message.priority is not None:
            raise InvalidMessageError("a transactional message cannot have a priority; leave it out")
        half = self._prepare(message, {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self.group})
        half = msgspec.structs.replace(
            half, sys_flag=half.sys_flag | TRANSACTION_PREPARED_TYPE, msg_type=MessageType.TRANSACTION
        )
        result = await self._sender.send(half, None, timeout_s or self._send_timeout_s)
        state = LocalTransactionState.UNKNOWN
        try:
            if result.send_status is SendStatus.SEND_OK:
                state = await _outcome(execute, message)
            else:
                state = LocalTransactionState.ROLLBACK_MESSAGE
        finally:
            await self._end(half.messages[0], result, state)
        return TransactionSendResult(**msgspec.structs.asdict(result), local_transaction_state=state)

    # No outcome depends on this producer alone. It is sent one way, without an answer, since a lost outcome is no loss:
    # the half message stays at the broker, which asks any member of the group after ``transactionTimeOut`` and again
    # later. ``check`` looks the outcome up where the local transaction has left it, so that it gives the same answer
    # however often it is asked, also after a restart. An outcome that arrives twice finds the half message already
    # ended. UNKNOWN is what an error makes of an outcome: it decides nothing, and the broker asks again.
    async def _end(self, message: Message, result: SendResult, state: LocalTransactionState) -> None:
        """Tell the broker the outcome; log a failure, after which the broker checks the transaction."""
        header = EndTransactionRequestHeader(
            self.group,
            result.queue_offset,
            decode_message_id(result.offset_msg_id).offset,
            state,
            result.msg_id,
            message.topic,
            transaction_id=result.transaction_id or result.msg_id,
        )
        try:
            address = self._client.routes.broker_address(result.message_queue)
            await self._client.remoting.invoke_oneway(address, _end_request(header))
            self._trace_end(message, header, address)
        except RocketBrokerError as error:
            log.warning(
                "producer %s: the outcome %s of transaction %s did not reach the broker, which will check it: %s",
                self.group,
                state.name,
                header.transaction_id,
                error,
            )

    def _check_soon(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, connection: Connection
    ) -> None:
        self._tasks.start(self._answer_check(message, header, connection), "check")

    async def _answer_check(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, connection: Connection
    ) -> None:
        state = LocalTransactionState.UNKNOWN
        try:
            shown = msgspec.structs.replace(message, topic=self._client.namespace.unwrap(message.topic))
            state = await _outcome(self._check, shown)
        except Exception:
            log.exception("producer %s: the check of transaction %s failed", self.group, header.transaction_id)
        end = EndTransactionRequestHeader(
            self.group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            state,
            message.uniq_key or header.msg_id or "",
            message.topic,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
        )
        connection.send_oneway(_end_request(end))
        self._trace_end(message, end, connection.remote_address)

    def _trace_end(self, message: Message | MessageExt, header: EndTransactionRequestHeader, broker: str) -> None:
        if self._trace is None:
            return
        state = LocalTransactionState(header.commit_or_rollback).name
        checked = header.from_transaction_check
        transaction_id = header.transaction_id or header.msg_id
        self._trace.end_transaction(message, header.msg_id, transaction_id, state, broker, checked=checked)


def _end_request(header: EndTransactionRequestHeader) -> Command:
    return client_request(RequestCode.END_TRANSACTION, header, oneway=True)


async def _outcome(function: Callable[[T], Outcome], message: T) -> LocalTransactionState:
    """Call a function on the loop if it is a coroutine function, else in a thread.

    Raises:
        HandlerError: It returned no LocalTransactionState.
    """
    if inspect.iscoroutinefunction(function):
        state: object = await function(message)
    else:
        state = await asyncio.to_thread(function, message)
        if inspect.isawaitable(state):
            state = await state
    if not isinstance(state, LocalTransactionState):
        raise HandlerError(f"{function!r} returned {state!r}; return a LocalTransactionState")
    return state
