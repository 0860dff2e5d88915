"""Puts of processors and their answers: refusals by the store, and acknowledgements from disk and slaves.

RocketMQ has one code, and one text, for several causes of a refusal. The code stays, since clients decide by it whether
to try another broker (SendMessageProcessor.handlePutMessageResult). The remark begins with the status, which names the
cause, and continues with the values.
"""

from typing import Final, NamedTuple, Self

from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import (
    STORED,
    Acknowledgement,
    Acknowledgements,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.message_store import MessageStore


class MessagePuts(NamedTuple):
    """Puts into a store, for processors that make messages.

    Attributes:
        config: the limits of a message.
        appender: append path.
        acknowledgements: acknowledgements of stored messages.
        store_host: the broker's address in the form of records.
    """

    config: MessageStoreConfig
    appender: MessageAppender
    acknowledgements: Acknowledgements
    store_host: bytes

    @classmethod
    def of(cls, store: MessageStore) -> Self:
        """Return the puts into a store."""
        return cls(store.config, store.appender, store.acknowledgements, store.commit_log.store_host)


RESPONSE_CODES: Final = {
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.DISK_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.READ_ONLY: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.NOT_DISPATCHED: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.NOT_STARTED: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.SHUTTING_DOWN: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.SLAVE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.TOPIC_BEING_DELETED: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.TOPIC_NOT_CREATED: ResponseCode.SERVICE_NOT_AVAILABLE,
}


def put_refusal(result: PutMessageResult) -> BrokerResponseError:
    """Return the answer to a put that did not end with PUT_OK."""
    return BrokerResponseError(RESPONSE_CODES[result.status], f"[{result.status.name}] {result.reason}")


def acknowledged_answer(answer: Command, outcome: Acknowledgement) -> Command:
    """Return ``answer``, or the error for an outcome that is not ok.

    FLUSH_DISK_TIMEOUT and FLUSH_SLAVE_TIMEOUT keep the fields: the message is stored nevertheless, and they are right.
    """
    if outcome.ok:
        return answer
    fields = answer.header if outcome.status in STORED else None
    return response(RESPONSE_CODES[outcome.status], outcome.reason, fields)


async def answer_when_acknowledged(
    acknowledgements: Acknowledgements, result: PutMessageResult, answer: Command
) -> Command:
    """Wait for the message, then return the result of ``acknowledged_answer``.

    It has to be on disk under SYNC_FLUSH and on slaves under SYNC_MASTER, and its topic on disk.
    """
    return acknowledged_answer(answer, await acknowledgements.acknowledged(result))
