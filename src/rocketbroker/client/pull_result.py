"""Result of a pull (org.apache.rocketmq.client.consumer.PullResult and PullStatus)."""

from enum import IntEnum

import msgspec

from rocketbroker.client.broker_errors import broker_error
from rocketbroker.codec.message.message_batch import unwrap_batch
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.remoting.custom_header import from_ext_fields
from rocketbroker.codec.remoting.headers.pull_message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.response_code import ResponseCode


class PullStatus(IntEnum):
    """Status of a pull."""

    FOUND = 0
    NO_NEW_MSG = 1
    NO_MATCHED_MSG = 2
    OFFSET_ILLEGAL = 3


class PullResult(msgspec.Struct, frozen=True):
    """Messages, and where to pull next; ``min_offset`` and ``max_offset`` are those of the queue."""

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]
    suggest_which_broker_id: int = 0


_STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


def pull_result(answer: Command, tags: frozenset[str]) -> PullResult:
    """Return the result in the answer to a pull; brokers filter by a hash of the tag only, so tags are compared again.

    Raises:
        BrokerResponseError: the broker refused.
        CodecError: header or messages are broken.
    """
    status = _STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark)
    header = from_ext_fields(answer.header, PullMessageResponseHeader)
    messages = unwrap_inner_batches(decode_messages(answer.body)) if status is PullStatus.FOUND else []
    if tags:
        messages = [message for message in messages if message.tags in tags]
    return PullResult(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        messages,
        header.suggest_which_broker_id,
    )


def unwrap_inner_batches(messages: list[MessageExt]) -> list[MessageExt]:
    """Return the messages, those of batches that are stored as one record (queue.type=BatchCQ) one by one."""
    mask = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    if not [True for message in messages if message.sys_flag & mask == mask]:
        return messages
    unwrapped: list[MessageExt] = []
    for message in messages:
        unwrapped += unwrap_batch(message) if message.sys_flag & mask == mask else [message]
    return unwrapped
