"""Topics to which producers send, as opposed to topics that only brokers write."""

from typing import Final

from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPIC_SET,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)

#: Topics to which no producer may send: their messages are in transit to another topic, or were sent long before.
NOT_SENT_TOPICS: Final = NOT_ALLOWED_SEND_TOPIC_SET
#: Prefixes of the topics that only brokers write, timer messages among them.
NOT_SENT_PREFIXES: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)
