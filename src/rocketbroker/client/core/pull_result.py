"""Selection of messages, and results of pulls (MessageSelector, FilterAPI, PullResult)."""

import re
from enum import IntEnum
from typing import Literal

import msgspec

from rocketbroker.client.core.errors import InvalidMessageError, broker_error
from rocketbroker.client.core.options import CheckedStruct
from rocketbroker.codec.message.message_batch import unwrap_batch
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_decoder import decode_messages, decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import CodecError

_LOOKS_LIKE_SQL = re.compile(r"[<>=()]|\s(?:and|or|in|is|not|like|between|contains)\s", re.IGNORECASE)


class MessageSelector(CheckedStruct, frozen=True):
    """An expression and its type: ``by_sql("a > 5")``, or ``by_tag("TagA || TagB")``."""

    expression: str
    expression_type: Literal["TAG", "SQL92"]

    @classmethod
    def by_sql(cls, expression: str) -> "MessageSelector":
        """Select by SQL92 on properties, which brokers serve with ``enablePropertyFilter=true``."""
        return cls(expression, "SQL92")

    @classmethod
    def by_tag(cls, expression: str) -> "MessageSelector":
        """Select by tags joined by ``||``; ``*`` selects all messages."""
        return cls(expression, "TAG")

    @property
    def tags(self) -> frozenset[str]:
        """The tags to select; empty for all messages and for SQL92."""
        if self.expression_type != "TAG" or self.expression.strip() in {"", "*"}:
            return frozenset()
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


def selector_of(expression: str | MessageSelector) -> MessageSelector:
    """Return the selector for an expression; a plain text is a list of tags.

    Raises:
        InvalidMessageError: the text looks like SQL.
    """
    if isinstance(expression, MessageSelector):
        return expression
    if _LOOKS_LIKE_SQL.search(expression):
        raise InvalidMessageError(
            f"{expression!r} looks like SQL, but a plain expression is a list of tags (TagA || TagB); "
            f"use MessageSelector.by_sql({expression!r}), or by_tag if these are tags"
        )
    return MessageSelector.by_tag(expression)


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


def subscription_data(topic: str, selector: MessageSelector, version: int) -> SubscriptionData:
    """Return a subscription as heartbeats and pulls carry it (FilterAPI.build); ``version`` in ms."""
    tags = sorted(selector.tags)
    codes = [java_hash(tag) for tag in tags]
    return SubscriptionData(topic, selector.expression, version, tags, codes, selector.expression_type)
