"""RESUME_CHECK_HALF_MESSAGE (323): checks of an abandoned transaction start again (AdminBrokerProcessor)."""

import asyncio

from rocketbroker.broker.transaction.transaction_query import messages_of_transaction
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.acknowledged_answer import answer_when_acknowledged
from rocketbroker.processor.support.put_refusal import put_refusal
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import Acknowledgements
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.read.message_queries import MessageQueries


class ResumeCheckHalfMessageProcessor:
    """Puts the message back into the half topic, with no check counted.

    It takes messages of TRANS_CHECK_MAX_TIME_TOPIC that were not taken up again yet, and half messages that are open,
    whose checks start again. (Apache RocketMQ puts any message there, the committed as well, and each time.)

    Args:
        appender: makes the new copy readable.
        queries: finds the message.
        acknowledgements: say when the copy may be answered.
        transactions: knows which transactions are open.
    """

    def __init__(
        self,
        appender: MessageAppender,
        queries: MessageQueries,
        acknowledgements: Acknowledgements,
        transactions: TransactionalMessageService,
    ) -> None:
        self._appender = appender
        self._queries = queries
        self._acknowledgements = acknowledgements
        self._transactions = transactions
        # Between the look whether a message was taken up again and its copy nobody else may take it up.
        self._lock = asyncio.Lock()

    async def process(
        self, _connection: Connection, command: RemotingCommand[ResumeCheckHalfMessageRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, the id is none or names no message that could be checked; those of a
                send, it could not be stored.
        """
        message = await self._message(command.header.msg_id or "")
        async with self._lock:
            result = await self._resume(message)
        answer = response()
        return await answer_when_acknowledged(self._acknowledgements, result, answer)

    async def _resume(self, message: MessageExt) -> PutMessageResult:
        if message.topic == RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC:
            await self._check_not_resumed(message)
        result = self._transactions.resume(message, self._open_offset(message))
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        self._appender.dispatch()
        return result

    async def _check_not_resumed(self, message: MessageExt) -> None:
        """Refuse one that was taken up again and has ended since: it would be committed twice.

        A discarded transaction has no copy of its half message behind it, until it is taken up again.
        """
        halves = await messages_of_transaction(self._queries, message, RMQ_SYS_TRANS_HALF_TOPIC)
        later = [half for half in halves if half.commit_log_offset > message.commit_log_offset]
        if later and self._transactions.open_copy(message) is None:
            raise _error(
                f"transaction {message.uniq_key} was taken up again since, as half message {later[0].queue_offset}, "
                "and has ended; if it was given up once more, its last message in "
                f"{RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC} would be right"
            )

    def _open_offset(self, message: MessageExt) -> int | None:
        """Find the half message that the new copy replaces, ``None`` for an abandoned transaction."""
        if message.topic == RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC:
            if self._transactions.open_copy(message) is not None:
                raise _error(f"transaction {message.uniq_key} is being checked already")
            return None
        open_offset = self._transactions.open_offset(message)
        if open_offset is None:
            raise _error(
                f"transaction {message.uniq_key} is not open: it was committed, rolled back or given up already"
            )
        return open_offset

    async def _message(self, msg_id: str) -> MessageExt:
        try:
            offset = decode_message_id(msg_id).offset
        except CodecError as error:
            raise _error(f"msgId is wrong: {error}") from error
        record = await self._queries.read_queued_message(offset) if offset >= 0 else None
        if record is None:
            raise _error(f"Find prepared transaction message failed: no message is at {offset}, which msgId names")
        message = decode_record(record)
        if message.topic not in {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC}:
            raise _error(
                f"the message at {offset} is of topic {message.topic}; one of {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC} or "
                f"{RMQ_SYS_TRANS_HALF_TOPIC} would be right"
            )
        return message


def _error(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
