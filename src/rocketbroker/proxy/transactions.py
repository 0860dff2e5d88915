"""Open transactions of this front's clients (TransactionDataManager, EndTransactionActivity).

A broker ends a transaction by the offsets of its half message; a client of gRPC knows only its id. So the offsets are
kept from the send, or from the broker's question for the outcome, until the client ends the transaction. Whatever is
lost here, by a restart or because there are too many, the broker asks about later.
"""

from typing import Final, NamedTuple

from rocketbroker.codec.message.message_const import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.remoting.headers.message import EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingError, shown
from rocketbroker.proxy.call_context import OK, StatusError, check_topic, succeeded
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    TransactionResolution,
    TransactionSource,
)
from rocketbroker.proxy.service_manager import ProxyChannel, ServiceManager

# About 20 MB.
_MOST_OPEN: Final = 65_536
_OUTCOMES: Final = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT_TYPE,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK_TYPE,
}


class HalfMessage(NamedTuple):
    """Place of a half message: its broker, and its offsets in its queue and in the CommitLog."""

    broker_name: str
    queue_offset: int
    commit_log_offset: int


class OpenTransactions:
    """Half messages by topic and transaction id; beyond a number the oldest is forgotten."""

    def __init__(self) -> None:
        self._halves: dict[tuple[str, str], HalfMessage] = {}

    def add(self, topic: str, transaction_id: str, half: HalfMessage) -> None:
        """Remember a half message; the broker's copy of one replaces it."""
        self._halves.pop((topic, transaction_id), None)
        self._halves[topic, transaction_id] = half
        if len(self._halves) > _MOST_OPEN:
            del self._halves[next(iter(self._halves))]

    async def end(
        self, brokers: ServiceManager, channel: ProxyChannel, end: EndTransactionRequest
    ) -> EndTransactionResponse:
        """Commit a transaction or roll it back; an unknown outcome leaves it open.

        Raises:
            StatusError: INVALID_TRANSACTION_ID without an id; INTERNAL_SERVER_ERROR if the transaction is not open
                here.
            BrokerResponseError: The broker did not end it.
            RemotingError: The broker cannot be reached.
        """
        topic = check_topic(end.topic)
        if not end.transaction_id.strip():
            remark = "transaction id cannot be empty; name the one of the send's answer"
            raise StatusError(Code.INVALID_TRANSACTION_ID, remark)
        key = topic, end.transaction_id
        half = self._halves.get(key)
        if half is None:
            remark = (
                f"cannot found transaction data: transaction {shown(end.transaction_id)} of topic {topic} is not open "
                "at this server, or has ended; the broker asks the producers of the topic while it is open"
            )
            raise StatusError(Code.INTERNAL_SERVER_ERROR, remark)
        outcome = _OUTCOMES.get(end.resolution, TRANSACTION_NOT_TYPE)
        header = EndTransactionRequestHeader(
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=outcome,
            msg_id=end.message_id,
            topic=topic,
            from_transaction_check=end.source == TransactionSource.SOURCE_SERVER_CHECK,
            transaction_id=end.transaction_id,
        )
        if outcome != TRANSACTION_NOT_TYPE:
            # Before the request, so that an end that comes meanwhile finds none.
            del self._halves[key]
        try:
            await succeeded(brokers.invoke(channel, half.broker_name, request(RequestCode.END_TRANSACTION, header)))
        except (BrokerResponseError, RemotingError) as error:
            if not (isinstance(error, BrokerResponseError) and error.code == ResponseCode.ILLEGAL_OPERATION):
                self._halves.setdefault(key, half)
            raise
        return EndTransactionResponse(status=OK)
