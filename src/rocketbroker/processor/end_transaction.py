"""END_TRANSACTION (37): commits a transaction or rolls it back (o.a.r.broker.processor.EndTransactionProcessor)."""

import logging
from collections.abc import Awaitable
from typing import Final

from rocketbroker.auth.policies import Action
from rocketbroker.auth.requester import Requester
from rocketbroker.broker.message_copy import real_place
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.broker.transaction.transactional_message_util import (
    immunity_ms,
    real_message,
)
from rocketbroker.codec.message.message_const import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.put_answers import answer_when_acknowledged, put_refusal
from rocketbroker.processor.support.request_family import NO_OUTCOMES, Refusal, answers
from rocketbroker.store.commitlog.put_message import Acknowledgements, PutMessageResult, PutMessageStatus
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)

_OUTCOMES = f"{TRANSACTION_COMMIT_TYPE} (commit), {TRANSACTION_ROLLBACK_TYPE} (rollback) or {TRANSACTION_NOT_TYPE}"
_PUB: Final = (Action.PUB,)
_SHOWN = 255
_AT_SLAVE = Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, NO_OUTCOMES)


class EndTransactionProcessor:
    """Stores the real message of a committed transaction, and records that it has ended.

    Producers expect no answer to this request, so a rejection is logged. A transaction that could not be ended stays
    open, and the broker checks it with its producer group. Unlike in Apache RocketMQ, ending a transaction twice is
    rejected.

    Args:
        config: timeout of transactions.
        queries: look-up of the half message.
        acknowledgements: acknowledgements of real messages.
        transactions: the open transactions.
        store_host: the broker's address in the form of records.
        clock: clock for the age of half messages.
    """

    def __init__(
        self,
        config: BrokerConfig,
        queries: MessageQueries,
        acknowledgements: Acknowledgements,
        transactions: TransactionalMessageService,
        store_host: bytes,
        clock: Clock,
    ) -> None:
        self._config = config
        self._queries = queries
        self._acknowledgements = acknowledgements
        self._transactions = transactions
        self._store_host = store_host
        self._clock = clock

    @answers(RequestCode.END_TRANSACTION, EndTransactionRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE, asks=True)
    def end_transaction(
        self,
        connection: Connection,
        command: RemotingCommand[EndTransactionRequestHeader],
        requester: Requester | None = None,
    ) -> Command | Awaitable[Command]:
        """Commit a transaction or roll it back.

        Under SYNC_FLUSH a commit is answered once the message is on disk, or with FLUSH_DISK_TIMEOUT.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the outcome is unknown; SYSTEM_ERROR if there is no such half
                message, or it is of another group; NO_PERMISSION if the user may not send to its topic;
                ILLEGAL_OPERATION if it has ended already, or it is too late to end it unasked; the codes of a send if
                the message could not be stored.
        """
        try:
            result = self._end(command.header, requester)
        except BrokerResponseError as error:
            if command.is_oneway:
                log.warning(
                    "END_TRANSACTION of %s rejected: %s; %.500r",
                    connection.remote_address,
                    error.remark,
                    command.header,
                )
            raise
        if result is None or command.is_oneway or not self._acknowledgements.required:
            return response()
        return answer_when_acknowledged(self._acknowledgements, result, response())

    def _end(self, header: EndTransactionRequestHeader, requester: Requester | None) -> PutMessageResult | None:
        """Commit or roll back; return the result of storing the real message, if there is one."""
        outcome = header.commit_or_rollback
        if outcome == TRANSACTION_NOT_TYPE:
            log.debug(
                "transaction %.100r is undecided; its producer will be asked", header.transaction_id or header.msg_id
            )
            return None
        if outcome not in {TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE}:
            remark = f"commitOrRollback is {outcome}; use {_OUTCOMES}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        half = self._half_message(header, requester)
        open_offset = self._open_offset(header, half)
        result = self._put_real_message(half) if outcome == TRANSACTION_COMMIT_TYPE else None
        self._transactions.end(half, open_offset)
        self._transactions.count_end(half, committed=result is not None)
        return result

    def _half_message(self, header: EndTransactionRequestHeader, requester: Requester | None) -> MessageExt:
        """Read the half message that a request names, if it is the group's (checkPrepareMessage)."""
        offset, queue_offset = header.commit_log_offset, header.tran_state_table_offset
        record = self._queries.queued_message(offset) if offset >= 0 else None
        half = decode_record(record) if record else None
        if half is None or half.topic != RMQ_SYS_TRANS_HALF_TOPIC:
            found = "no message" if half is None else f"a message of topic {half.topic}"
            if half is not None and requester is not None and requester.is_limited:
                found = "another message"  # whose topic the user may not know
            raise _error(f"Find prepared transaction message failed: {found} is at commitLogOffset {offset}")
        if requester is not None:
            topic = half.get_property(PROPERTY_REAL_TOPIC) or half.topic
            requester.check(f"the half message at commitLogOffset {offset}", [topic], _PUB)
        if half.queue_offset != queue_offset:
            raise _error(
                f"The transaction state table offset wrong: tranStateTableOffset is {queue_offset}, but the half "
                f"message at commitLogOffset {offset} has {half.queue_offset}"
            )
        group = half.get_property(PROPERTY_PRODUCER_GROUP)
        if group != header.producer_group:
            raise _error(
                f"The producer group wrong: the transaction is of {group}, not of {header.producer_group[:_SHOWN]}"
            )
        return half

    def _open_offset(self, header: EndTransactionRequestHeader, half: MessageExt) -> int:
        if not header.from_transaction_check:
            self._check_age(half)
        open_offset = self._transactions.open_offset(half)
        if open_offset is None:
            remark = f"transaction {half.uniq_key} is not open: it was committed, rolled back or discarded already"
            raise BrokerResponseError(ResponseCode.ILLEGAL_OPERATION, remark)
        return open_offset

    def _check_age(self, half: MessageExt) -> None:
        """Reject an unasked end after the check immunity of a message that has one (rejectCommitOrRollback)."""
        limit_ms = immunity_ms(half, self._config.transaction_time_out)
        age_ms = self._clock.time_ms() - half.born_timestamp
        if limit_ms is not None and age_ms > limit_ms:
            remark = (
                f"transaction {half.uniq_key} is {age_ms} ms old, and its producer may end it unasked only for "
                f"{limit_ms} ms (CHECK_IMMUNITY_TIME_IN_SECONDS, transactionTimeOut); wait for the broker's check"
            )
            raise BrokerResponseError(ResponseCode.ILLEGAL_OPERATION, remark)

    def _put_real_message(self, half: MessageExt) -> PutMessageResult:
        place = real_place(half.properties_bytes)
        if place is None:
            raise _error("the half message has no target: it needs the properties REAL_TOPIC and REAL_QID")
        result = self._transactions.put(real_message(half, place, self._store_host))
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        return result


def _error(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
