"""Message to send (org.apache.rocketmq.common.message.Message)."""

from collections.abc import Iterable, Mapping

import msgspec

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)
from rocketbroker.codec.message.topic_validator import is_not_allowed_send_topic, validate_group, validate_topic

MAX_MESSAGE_SIZE = 4 * 1024 * 1024


class Message(msgspec.Struct, frozen=True):
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
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | tuple[str, ...] | None = None
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_time_level: int = 0
    wait_store_msg_ok: bool = True

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
        return properties


def check_message(message: Message, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
    """Check a message before it is sent (Validators.checkMessage).

    Raises:
        InvalidMessageError: invalid topic, body or property; the text says what would be valid.
    """
    check_topic(message.topic)
    if is_not_allowed_send_topic(message.topic):
        raise InvalidMessageError(f"Sending message to topic[{message.topic}] is forbidden.")
    body: object = message.body  # whatever its annotation says
    if not isinstance(body, bytes | bytearray | memoryview):
        kind = type(body).__name__
        raise InvalidMessageError(f'the message body is a {kind}; give bytes, such as b"text" or text.encode()')
    if not message.body:
        raise InvalidMessageError("the message body is empty; give at least one byte")
    if len(message.body) > max_message_size:
        size = len(message.body)
        raise InvalidMessageError(f"the message body of {size:,} bytes exceeds maxMessageSize ({max_message_size:,})")
    check_properties(message.properties)
    for name, value in message.properties.items():
        if not isinstance(value, str):
            raise InvalidMessageError(f"the property {name!r} is {value!r}; give text, such as {str(value)!r}")


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
