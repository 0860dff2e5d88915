"""Topics that hold messages as they came from producers."""

from typing import Final

from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPIC_SET,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)

#: Topics to which no producer may send: what lies there is on its way to another topic, or was sent long ago.
NOT_SENT_TOPICS: Final = NOT_ALLOWED_SEND_TOPIC_SET
#: How names of topics begin that only brokers write to, timer messages among them.
NOT_SENT_PREFIXES: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)
