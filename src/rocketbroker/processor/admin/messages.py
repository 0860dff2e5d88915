"""Messages and queue entries on disk (AdminBrokerProcessor)."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketbroker.auth.policies import Action
from rocketbroker.auth.requester import Requester
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.transaction.half_messages import messages_of_transaction
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.offset import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumeQueueRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.found_messages import check_found
from rocketbroker.processor.support.put_answers import answer_when_acknowledged, put_refusal
from rocketbroker.processor.support.request_checks import check_known_group, check_queue
from rocketbroker.processor.support.request_family import NO_OUTCOMES, Refusal, answers
from rocketbroker.store.commitlog.put_message import Acknowledgements, PutMessageResult, PutMessageStatus
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

_UPDATE: Final = (Action.UPDATE,)
# About 1 MiB of JSON.
MAX_COUNT = 10_000


log = logging.getLogger(__name__)


class Cleaning(Protocol):
    def delete_files_manually(self) -> None:
        """Request the removal of expired CommitLog files."""


@dataclass(frozen=True, slots=True)
class MessageRequests:
    """Requests about stored messages and the entries of queues.

    Attributes:
        appender: append path, to dispatch the new copy.
        queries: look-up of the message.
        acknowledgements: acknowledgements of copies.
        transactions: the open transactions.
    """

    consumers: ConsumerManager
    consumer_filters: ConsumerFilterManager
    queues: ConsumeQueueStore
    appender: MessageAppender
    queries: MessageQueries
    acknowledgements: Acknowledgements
    transactions: TransactionalMessageService
    cleaning: Cleaning
    # Held from the check that a message was not resumed until its copy is stored, so that nothing else resumes it
    # in between.
    _resuming: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @answers(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader)
    def query_consume_queue(
        self, _connection: Connection, command: RemotingCommand[QueryConsumeQueueRequestHeader]
    ) -> Command:
        """Answer entries, the ends of the queue and, if the request names a group, the group's subscription.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a field is illegal; SYSTEM_ERROR if there is no such queue, or it
                has no offset ``index``.
        """
        header = command.header
        queue = self._queue(header)
        body = QueryConsumeQueueResponseBody(
            entries(queue, header.index, header.count), queue.max_offset, queue.min_offset
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, header.topic)
        return response(body=body.encode())

    def _queue(self, header: QueryConsumeQueueRequestHeader) -> ConsumeQueueInterface:
        check_queue(header.topic, header.queue_id)
        if not 0 <= header.count <= MAX_COUNT:
            remark = f"the count {header.count} is illegal; use 0 to {MAX_COUNT}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        name = f"{header.queue_id}@{header.topic}"
        queue = self.queues.find(header.topic, header.queue_id)
        if queue is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{name} is not exist!")
        if not queue.min_offset <= header.index <= queue.max_offset:
            remark = f"Index {header.index} of {name} is not exist! Use {queue.min_offset} to {queue.max_offset}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        return queue

    def _add_subscription(self, body: QueryConsumeQueueResponseBody, group: str, topic: str) -> None:
        if group:  # consoles send an empty name if the user names no group
            check_known_group(group)
        found = self.consumers.find_subscription_data(group, topic)
        if found is None:
            body.filter_data = f"{group}@{topic} is not online!"
        else:
            body.subscription_data = found.data
            registered = self.consumer_filters.get(topic, group)
            data = None if registered is None else registered.data
            body.filter_data = fastjson.dumps(data, indent="\t").decode()

    @answers(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        ResumeCheckHalfMessageRequestHeader,
        at_slave=Refusal(ResponseCode.SYSTEM_ERROR, NO_OUTCOMES),
        asks=True,
    )
    async def resume_check_half_message(
        self,
        _connection: Connection,
        command: RemotingCommand[ResumeCheckHalfMessageRequestHeader],
        requester: Requester | None = None,
    ) -> Command:
        """Put the message back into the half topic, with no check counted.

        It accepts messages of TRANS_CHECK_MAX_TIME_TOPIC that were not resumed yet, and open half messages,
        whose checks restart. (Apache RocketMQ accepts any message, even a committed one, and any number of
        times.)

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the id is illegal or names no message that can be checked;
                NO_PERMISSION if the user lacks the right on its topic; the codes of a send if the copy could not be
                stored.
        """
        message = await self._message(command.header.msg_id or "", requester)
        async with self._resuming:
            result = await self._resume(message)
        answer = response()
        return await answer_when_acknowledged(self.acknowledgements, result, answer)

    async def _resume(self, message: MessageExt) -> PutMessageResult:
        if message.topic == RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC:
            await self._check_not_resumed(message)
        result = self.transactions.resume(message, self._open_offset(message))
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        self.appender.dispatch()
        return result

    async def _check_not_resumed(self, message: MessageExt) -> None:
        """Reject a message that was resumed and has ended since: it would be committed twice.

        A discarded transaction has no later copy of its half message until it is resumed.
        """
        halves = await messages_of_transaction(self.queries, message, RMQ_SYS_TRANS_HALF_TOPIC)
        later = [half for half in halves if half.commit_log_offset > message.commit_log_offset]
        if later and self.transactions.open_copy(message) is None:
            raise _error(
                f"transaction {message.uniq_key} was resumed as half message {later[0].queue_offset} and has ended; "
                f"if it was discarded again, name its last message in {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC}"
            )

    def _open_offset(self, message: MessageExt) -> int | None:
        """Find the half message that the new copy replaces, ``None`` for an abandoned transaction."""
        if message.topic == RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC:
            if self.transactions.open_copy(message) is not None:
                raise _error(f"transaction {message.uniq_key} is being checked already")
            return None
        open_offset = self.transactions.open_offset(message)
        if open_offset is None:
            raise _error(
                f"transaction {message.uniq_key} is not open: it was committed, rolled back or discarded already"
            )
        return open_offset

    async def _message(self, msg_id: str, requester: Requester | None) -> MessageExt:
        try:
            offset = decode_message_id(msg_id).offset
        except CodecError as error:
            raise _error(f"msgId is wrong: {error}") from error
        record = await self.queries.read_queued_message(offset) if offset >= 0 else None
        if record is None:
            raise _error(f"Find prepared transaction message failed: no message is at {offset}, which msgId names")
        message = decode_record(record)
        check_found(requester, message, _UPDATE)
        if message.topic not in {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC}:
            raise _error(
                f"the message at {offset} is of topic {message.topic}; name one of "
                f"{RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC} or {RMQ_SYS_TRANS_HALF_TOPIC}"
            )
        return message

    @answers(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired_commitlog(self, connection: Connection, _command: Command) -> Command:
        """Request the removal of expired CommitLog files, whatever ``deleteWhen`` says; answers before it is done."""
        log.warning("removal of expired CommitLog files requested by %s", connection.remote_address)
        self.cleaning.delete_files_manually()
        return response()


def entries(queue: ConsumeQueueInterface, index: int, count: int) -> list[ConsumeQueueData]:
    """Return up to ``count`` entries from ``index`` on, across files; a batch has one entry."""
    if queue.holds_batches:
        return [ConsumeQueueData(*entry) for entry in queue.entries(index, count)]
    found: list[ConsumeQueueData] = []
    while len(found) < count:
        part = [ConsumeQueueData(*entry) for entry in queue.entries(index + len(found), count - len(found))]
        if not part:
            break
        found += part
    return found


def _error(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
