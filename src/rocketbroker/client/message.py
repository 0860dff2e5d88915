"""Message to send (org.apache.rocketmq.common.message.Message)."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)
from rocketbroker.codec.message.topic_validator import is_not_allowed_send_topic, validate_group, validate_topic

MAX_MESSAGE_SIZE = 4 * 1024 * 1024


class MessageType(Enum):
    """Types of messages (org.apache.rocketmq.common.message.MessageType)."""

    NORMAL = "Normal"
    ORDER = "Order"
    DELAY = "Delay"
    TRANSACTION = "Trans"


class _MessageMeta(type(msgspec.Struct)):  # type: ignore[misc] # the metaclass of msgspec is private
    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*values, **fields)
            except TypeError as error:
                for name in fields.keys() - set(cls.__struct_fields__):
                    raise InvalidMessageError(_no_field(name, cls.__struct_fields__)) from error
                raise


def _no_field(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, 1)
    right = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"a message has no field {name}; {right}"


class Message(msgspec.Struct, frozen=True, metaclass=_MessageMeta):
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
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | tuple[str, ...] | None = None
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_time_level: int = 0
    wait_store_msg_ok: bool = True
    delay_time_ms: int = 0
    deliver_time_ms: int = 0
    sharding_key: str | None = None

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
        return properties


def check_message(message: Message, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
    """Check a message before it is sent (Validators.checkMessage).

    Raises:
        InvalidMessageError: Invalid topic, body or property; the text says what would be valid.
    """
    _check_destination(message.topic)
    body: object = message.body  # whatever its annotation says
    if type(body) is not bytes and not isinstance(body, bytes | bytearray | memoryview):
        kind = type(body).__name__
        raise InvalidMessageError(f'the message body is a {kind}; give bytes, such as b"text" or text.encode()')
    if not message.body:
        raise InvalidMessageError("the message body is empty; give at least one byte")
    if len(message.body) > max_message_size:
        size = len(message.body)
        raise InvalidMessageError(f"the message body of {size:,} bytes exceeds maxMessageSize ({max_message_size:,})")
    if message.is_delayed:
        _check_delays(message)
    check_properties(message.properties)
    for name, value in message.properties.items():
        if not isinstance(value, str):
            raise InvalidMessageError(f"the property {name!r} is {value!r}; give text, such as {str(value)!r}")


def _check_delays(message: Message) -> None:
    names = ("delay_time_level", "delay_time_ms", "deliver_time_ms")
    delays = {name: value for name in names if (value := getattr(message, name))}
    for name, value in delays.items():
        if type(value) is not int or value < 0:
            raise InvalidMessageError(f"{name} is {value!r}; give a whole number from 0")
    if len(delays) > 1:
        raise InvalidMessageError(f"the message has {' and '.join(delays)}; give one of them")


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
