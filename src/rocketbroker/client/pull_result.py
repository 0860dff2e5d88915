"""Result of a pull (org.apache.rocketmq.client.consumer.PullResult and PullStatus)."""

from enum import IntEnum

import msgspec

from rocketbroker.client.broker_errors import broker_error
from rocketbroker.codec.message.message_batch import unwrap_batch
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_decoder import decode_messages, decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import CodecError

# totalSize, magic, bodyCRC, queueId and flag come before it in a record.
_QUEUE_OFFSET_POSITION = 20


class PullStatus(IntEnum):
    """Status of a pull."""

    FOUND = 0
    NO_NEW_MSG = 1
    NO_MATCHED_MSG = 2
    OFFSET_ILLEGAL = 3


class PullResult(msgspec.Struct, frozen=True):
    """Messages, and where to pull next; ``min_offset`` and ``max_offset`` are those of the queue.

    With ``damage``, the text of an error, the message at ``next_begin_offset`` cannot be read: its checksum is wrong,
    or it cannot be decoded. The messages before it are here.
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]
    suggest_which_broker_id: int = 0
    damage: str = ""


_STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


def pull_result(answer: Command, tags: frozenset[str], offset: int = 0) -> PullResult:
    """Return the result in the answer to a pull at an offset.

    Brokers filter by a hash of the tag only, so tags are compared again.

    Raises:
        BrokerResponseError: the broker refused.
        CodecError: the header is broken.
    """
    status = _STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark)
    header = from_ext_fields(answer.header, PullMessageResponseHeader)
    next_offset, damage = header.next_begin_offset, ""
    messages: list[MessageExt] = []
    if status is PullStatus.FOUND:
        try:
            messages = unwrap_inner_batches(decode_messages(answer.body))
        except CodecError as error:
            messages, damaged_at = _before_the_damage(answer.body)
            following = messages[-1].queue_offset + 1 if messages else offset
            # The broker's filter may have skipped messages before it: its own offset counts where that can be true.
            next_offset, damage = damaged_at if following <= damaged_at < next_offset else following, str(error)
    if tags:
        messages = [message for message in messages if message.tags in tags]
    return PullResult(
        status,
        next_offset,
        header.min_offset,
        header.max_offset,
        messages,
        header.suggest_which_broker_id,
        damage,
    )


def _before_the_damage(body: bytes) -> tuple[list[MessageExt], int]:
    """Return the messages before the first one that cannot be read, and the queue offset in that one; -1 if none."""
    messages: list[MessageExt] = []
    position = 0
    while position < len(body):
        try:
            record = decode_record(body, position, check_crc=True, decompress=True)
            messages += unwrap_inner_batches([record])
        except CodecError:
            break
        position += record.store_size
    if len(body) - position < _QUEUE_OFFSET_POSITION + 8:
        return messages, -1
    return messages, int.from_bytes(body[position + _QUEUE_OFFSET_POSITION :][:8], "big", signed=True)


def unwrap_inner_batches(messages: list[MessageExt]) -> list[MessageExt]:
    """Return the messages, those of batches that are stored as one record (queue.type=BatchCQ) one by one."""
    mask = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    if not [True for message in messages if message.sys_flag & mask == mask]:
        return messages
    unwrapped: list[MessageExt] = []
    for message in messages:
        unwrapped += unwrap_batch(message) if message.sys_flag & mask == mask else [message]
    return unwrapped
