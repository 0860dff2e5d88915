"""Pull requests of one consumer group, and their results (PullAPIWrapper, PullResult, MessageSelector)."""

import re
from enum import IntEnum
from typing import Literal

import msgspec

from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import InvalidMessageError, broker_error
from rocketbroker.client.core.options import CheckedStruct
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_batch import unwrap_batch
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_decoder import decode_messages, decode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.remoting.bodies.client import CheckClientRequestBody, SubscriptionData
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
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


async def check_filter(client: ClientInstance, group: str, subscription: SubscriptionData) -> None:
    """Check that all brokers of a topic can apply the filter of a subscription (CHECK_CLIENT_CONFIG).

    Raises:
        TopicRouteError, NameServerError: no route for the topic.
        BrokerResponseError: a broker cannot apply it; the remark has its reason.
        RemotingError: a broker does not answer.
    """
    route = await client.routes.route(subscription.topic)
    if subscription.expression_type == "TAG":
        return
    body = CheckClientRequestBody(client.client_id, group, subscription).encode()
    for queue in {queue.broker_name: queue for queue in route.subscribe_queues}.values():
        answer = await client.invoke_at_broker(queue, client_request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
        check_success(answer)


class PullAPIWrapper:
    """Pulls from the broker that each queue's last answer suggested.

    Args:
        client: connections and routes.
        group: the consumer group.
        pull_timeout_s: limit of a pull on top of the time that the broker may hold it.
    """

    def __init__(self, client: ClientInstance, group: str, pull_timeout_s: float) -> None:
        self._client = client
        self._group = group
        self._pull_timeout_s = pull_timeout_s
        self._pull_from: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_nums: int,
        subscription: SubscriptionData,
        suspend_timeout_s: float,
    ) -> PullResult:
        """Return messages of a queue from an offset on.

        Raises:
            TopicRouteError, BrokerNotFoundError, NameServerError: no address for the broker.
            BrokerResponseError: the broker refused.
            RemotingError: the broker does not answer.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_nums,
            sys_flag=FLAG_SUBSCRIPTION | (FLAG_SUSPEND if suspend_timeout_s > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=round(suspend_timeout_s * 1000),
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
        )
        broker_id = self._pull_from.get(queue, MASTER_ID)
        command = client_request(RequestCode.PULL_MESSAGE, header)
        timeout_s = self._pull_timeout_s + suspend_timeout_s
        answer = await self._client.invoke_at(queue, broker_id, command, timeout_s, exactly=False)
        result = pull_result(answer, frozenset(subscription.tags_set), offset)
        self._pull_from[queue] = result.suggest_which_broker_id
        return result

    def forget(self, queue: MessageQueue) -> None:
        """Forget the suggested broker of a queue that is no longer pulled."""
        self._pull_from.pop(queue, None)
