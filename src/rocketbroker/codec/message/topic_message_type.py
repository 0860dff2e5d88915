"""Types of messages, as the attribute ``message.type`` of a topic names them (TopicMessageType)."""

from collections.abc import Mapping
from typing import Final

from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)

#: Name of the attribute.
MESSAGE_TYPE: Final = "message.type"

NORMAL: Final = "NORMAL"
FIFO: Final = "FIFO"
DELAY: Final = "DELAY"
TRANSACTION: Final = "TRANSACTION"
PRIORITY: Final = "PRIORITY"
#: Any type; routes of the gRPC port name all but PRIORITY.
MIXED: Final = "MIXED"

_DELAYS: Final = (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
)


def type_of(properties: Mapping[str, str]) -> str:
    """Return the type of a message (parseFromMessageProperty); the first that its properties name counts."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if any(name in properties for name in _DELAYS):
        return DELAY
    if PROPERTY_SHARDING_KEY in properties:
        return FIFO
    return PRIORITY if PROPERTY_PRIORITY in properties else NORMAL
