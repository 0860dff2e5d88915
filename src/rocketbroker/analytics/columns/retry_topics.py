"""Groups of retry topics, by their names (org.apache.rocketmq.common.KeyBuilder)."""

from collections.abc import Mapping
from typing import Final

from rocketbroker.codec.message.message_const import PROPERTY_ORIGIN_GROUP
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX

#: Between group and topic in the name of a retry topic of consumption by pop; names may have it themselves.
POP_RETRY_SEPARATOR_V1: Final = "_"
#: Likewise with enableRetryTopicV2; neither a group nor a topic may have it.
POP_RETRY_SEPARATOR_V2: Final = "+"


def retry_group(topic: str, properties: Mapping[str, str]) -> str:
    """Return the group that the retry topic ``topic`` is of.

    ``%RETRY%GROUP`` is that of consumers that pull; what is consumed by pop is retried in ``%RETRY%GROUP+TOPIC`` or
    ``%RETRY%GROUP_TOPIC``. The last may as well be that of a group GROUP_TOPIC, but a message that was popped tells its
    group (ORIGIN_GROUP). The first brokers that had pop did not keep that: GROUP_TOPIC stands for theirs.

    Args:
        topic: begins with ``%RETRY%``.
        properties: of any message in it.
    """
    name = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    if POP_RETRY_SEPARATOR_V2 in name:
        return name.partition(POP_RETRY_SEPARATOR_V2)[0]
    group = properties.get(PROPERTY_ORIGIN_GROUP)
    return group if group is not None and name.startswith(group + POP_RETRY_SEPARATOR_V1) else name
