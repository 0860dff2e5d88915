"""Message to send, and what becomes of it (Message, SendResult and SendMessageHook of RocketMQ)."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Annotated, ClassVar, Protocol

import msgspec
from msgspec import structs

from rocketbroker.client.core.errors import ClientError, InvalidMessageError, broker_error
from rocketbroker.client.core.options import CheckedStruct, CountFrom0
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import is_not_allowed_send_topic, validate_group, validate_topic
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode

MAX_MESSAGE_SIZE = 4 * 1024 * 1024
_MIN_INT, _MAX_INT = -(2**31), 2**31 - 1
_ZERO = 0
_TEXTS = {str}


class MessageType(Enum):
    """Types of messages (org.apache.rocketmq.common.message.MessageType)."""

    NORMAL = "Normal"
    ORDER = "Order"
    DELAY = "Delay"
    TRANSACTION = "Trans"


class Message(CheckedStruct, frozen=True):
    """Message before it is sent.

    Args:
        topic: destination.
        body: content; not empty.
        tags: tag that consumers filter by.
        keys: one or more keys for lookups.
        properties: user properties; RocketMQ's own names are rejected.
        flag: number for the application; the broker ignores it.
        delay_time_level: 0, or a level of the broker's messageDelayLevel, counted from 1.
        wait_store_msg_ok: wait for the flush if the broker is set to SYNC_FLUSH.
        delay_time_ms: 0, or the time from now to the delivery in ms.
        deliver_time_ms: 0, or the time of the delivery in ms since the epoch.
        sharding_key: messages with equal keys go to one queue, in the order of their sends.
        priority: 0 or more, for a topic with message.type=PRIORITY. It is the queue that the broker chooses, or the
            last one if it has fewer, and pops read the higher one first.

    Raises:
        InvalidMessageError: unknown field, or a value that is not allowed.
    """

    error: ClassVar[type[ClientError]] = InvalidMessageError

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: Mapping[str, str] = {}
    flag: Annotated[int, msgspec.Meta(ge=_MIN_INT, le=_MAX_INT)] = 0
    delay_time_level: CountFrom0 = 0
    wait_store_msg_ok: bool = True
    delay_time_ms: CountFrom0 = 0
    deliver_time_ms: CountFrom0 = 0
    sharding_key: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)] | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        A program makes a message for each send, so the usual ones pass without the loop over all fields. What they do
        not cover, such as a delay or a list of keys, goes through it.
        """
        tags, keys, key = self.tags, self.keys, self.sharding_key
        if not (
            type(self.topic) is str
            and type(self.body) is bytes
            and (tags is None or type(tags) is str)
            and (keys is None or type(keys) is str or (type(keys) is tuple and {*map(type, keys)} == _TEXTS))
            and (key is None or type(key) is str)
            and type(self.properties) is dict
            and self.flag is self.delay_time_level is self.delay_time_ms is self.deliver_time_ms is _ZERO
            and self.wait_store_msg_ok is True
            and self.priority is None
        ):
            super().__post_init__()

    @property
    def is_delayed(self) -> bool:
        """True if the broker delivers it later."""
        return bool(self.delay_time_level or self.delay_time_ms or self.deliver_time_ms)

    @property
    def msg_type(self) -> MessageType:
        """Type of the message when it is sent as it is."""
        if self.is_delayed:
            return MessageType.DELAY
        return MessageType.ORDER if self.sharding_key else MessageType.NORMAL

    def all_properties(self) -> dict[str, str]:
        """Return the properties as they go to the broker, those made of other fields included."""
        properties = dict(self.properties)
        if self.keys:
            properties[PROPERTY_KEYS] = self.keys if isinstance(self.keys, str) else KEY_SEPARATOR.join(self.keys)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "true" if self.wait_store_msg_ok else "false"
        if self.tags:
            properties[PROPERTY_TAGS] = self.tags
        if self.delay_time_level > 0:
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(self.delay_time_level)
        if self.delay_time_ms > 0:
            properties[PROPERTY_TIMER_DELAY_MS] = str(self.delay_time_ms)
        if self.deliver_time_ms > 0:
            properties[PROPERTY_TIMER_DELIVER_MS] = str(self.deliver_time_ms)
        if self.sharding_key:
            properties[PROPERTY_SHARDING_KEY] = self.sharding_key
        if self.priority is not None:
            properties[PROPERTY_PRIORITY] = str(self.priority)
        return properties


def check_message(message: Message, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
    """Check a message before it is sent (Validators.checkMessage).

    Raises:
        InvalidMessageError: Invalid topic, body or property; the text says what would be valid.
    """
    _check_destination(message.topic)
    if not message.body:
        raise InvalidMessageError("the message body is empty; give at least one byte")
    if len(message.body) > max_message_size:
        size = len(message.body)
        raise InvalidMessageError(f"the message body of {size:,} bytes exceeds maxMessageSize ({max_message_size:,})")
    if message.is_delayed:
        names = ("delay_time_level", "delay_time_ms", "deliver_time_ms")
        delays = [name for name in names if getattr(message, name)]
        if len(delays) > 1:
            raise InvalidMessageError(f"the message has {' and '.join(delays)}; give one of them")
    if message.priority is not None and (message.is_delayed or message.sharding_key):
        raise InvalidMessageError(
            f"the message has the priority {message.priority}, which the broker would drop: it is delayed, or has a "
            "sharding_key; remove the priority, or the delay and sharding_key"
        )
    check_properties(message.properties)
    for name, value in message.properties.items():
        if not isinstance(value, str):
            raise InvalidMessageError(f"the property {name!r} is {value!r}; give text, such as {str(value)!r}")


# A producer sends to few topics. Errors are not cached, and valid names are short.
@lru_cache(maxsize=1024)
def _check_destination(topic: str) -> None:
    check_topic(topic)
    if is_not_allowed_send_topic(topic):
        raise InvalidMessageError(f"Sending message to topic[{topic}] is forbidden.")


def check_topic(topic: str) -> None:
    """Raise InvalidMessageError for an invalid topic name."""
    result = validate_topic(topic)
    if not result.valid:
        raise InvalidMessageError(result.remark)


def check_properties(names: Iterable[str]) -> None:
    """Raise InvalidMessageError if a name is reserved by RocketMQ."""
    for name in names:
        if name in STRING_HASH_SET:
            text = f"the property {name!r} is kept for RocketMQ itself; use the field of Message, or another name"
            raise InvalidMessageError(text)


def check_group(group: str) -> None:
    """Raise InvalidMessageError for an invalid group name."""
    result = validate_group(group)
    if not result.valid:
        raise InvalidMessageError(result.remark)


class SendStatus(IntEnum):
    """Durability of a stored message; every status means that the master has stored it."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


class SendResult(msgspec.Struct, frozen=True):
    """Place of a sent message.

    ``msg_id`` is the unique id (comma-joined for a batch), ``offset_msg_id`` the broker's id, ``queue_offset`` the
    position in the queue, of the first message for a batch. ``Producer.recall`` takes ``recall_handle`` to cancel a
    message for later.
    """

    send_status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    trace_on: bool = False
    msg_type: MessageType = MessageType.NORMAL
    recall_handle: str | None = None


_STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def send_result(answer: Command, queue: MessageQueue, unique_ids: str, msg_type: MessageType) -> SendResult:
    """Return the result in the answer to a send.

    Raises:
        BrokerResponseError: The broker rejected the message.
        CodecError: A field of the answer is missing or mistyped.
    """
    status = _STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark)
    header = from_ext_fields(answer.header, SendMessageResponseHeader)
    fields: dict[str, str] = answer.header
    return SendResult(
        status,
        unique_ids,
        header.msg_id,
        queue if header.queue_id == queue.queue_id else structs.replace(queue, queue_id=header.queue_id),
        header.queue_offset,
        header.transaction_id,
        fields.get("MSG_REGION"),
        fields.get("TRACE_ON", "true") != "false",
        msg_type,
        header.recall_handle,
    )


class SendMessageContext(msgspec.Struct):
    """One try of a send. ``result`` or ``error`` is set when it is over.

    ``start_ms`` is the time at which it began. The error of a cancelled send is a CancelledError; a one-way send that
    left has neither. Group and messages have their names without the namespace, ``queue`` has it.
    """

    producer_group: str
    messages: Sequence[Message]
    unique_ids: str
    msg_type: MessageType
    queue: MessageQueue
    broker_addr: str
    start_ms: int
    result: SendResult | None = None
    error: BaseException | None = None


class SendMessageHook(Protocol):
    """Called on the event loop; an error is logged and changes nothing."""

    def send_message_before(self, context: SendMessageContext) -> None:
        """Note a try before its request is sent."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """Note the result of a try."""
