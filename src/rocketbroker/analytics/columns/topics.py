"""Topics by their names: those that only brokers write, and the groups of retry topics."""

from collections.abc import Mapping
from typing import Final

from rocketbroker.codec.message.message_const import PROPERTY_ORIGIN_GROUP
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

#: Separates group and topic in the name of a pop retry topic; both names may contain it.
POP_RETRY_SEPARATOR_V1: Final = "_"
#: The same with enableRetryTopicV2; neither name may contain it.
POP_RETRY_SEPARATOR_V2: Final = "+"


def retry_group(topic: str, properties: Mapping[str, str]) -> str:
    """Return the consumer group of the retry topic ``topic``.

    Pull consumers retry in ``%RETRY%GROUP``, pop consumers in ``%RETRY%GROUP+TOPIC`` or ``%RETRY%GROUP_TOPIC``. The
    last form may also belong to a group GROUP_TOPIC; ``properties``, those of any message in it, name the group of a
    popped message (ORIGIN_GROUP). The first brokers with pop did not store that property: GROUP_TOPIC is returned.
    """
    name = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    if POP_RETRY_SEPARATOR_V2 in name:
        return name.partition(POP_RETRY_SEPARATOR_V2)[0]
    group = properties.get(PROPERTY_ORIGIN_GROUP)
    return group if group is not None and name.startswith(group + POP_RETRY_SEPARATOR_V1) else name
