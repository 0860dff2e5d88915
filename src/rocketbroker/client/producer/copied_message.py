"""Message to send again, made from a stored one."""

from collections.abc import Mapping

from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, Message, check_message
from rocketbroker.codec.message.message_const import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)


def copied_message(
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
    flag: int,
    *,
    more: Mapping[str, str] | None = None,
    max_size: int = MAX_MESSAGE_SIZE,
) -> Message:
    """Return a message with the keys, tags, flag, body and properties of a stored one.

    RocketMQ's own properties are left out, since the send sets them again: the unique id, retries, delays, traces.

    Args:
        topic: topic to send to.
        body: decompressed body.
        properties: all properties of the stored message.
        flag: flag of the application.
        more: properties to add.
        max_size: largest body in bytes.

    Raises:
        InvalidMessageError: it cannot be sent; the text says why.
    """
    own = {name: value for name, value in properties.items() if name not in STRING_HASH_SET}
    message = Message(
        topic,
        body,
        tags=properties.get(PROPERTY_TAGS),
        keys=properties.get(PROPERTY_KEYS),
        properties={**own, **(more or {})},
        flag=flag,
        wait_store_msg_ok=properties.get(PROPERTY_WAIT_STORE_MSG_OK) != "false",
    )
    check_message(message, max_size)
    return message
