"""Checks of names in requests, before anything is looked up, created or removed (TopicValidator)."""

import re

from rocketbroker.codec.message.topic_validator import (
    GROUP_MAX_LENGTH,
    LEGACY_GROUP_MAX_LENGTH,
    is_system_group,
    validate_group,
    validate_topic,
)
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

# Topics are also named after the broker and its cluster, whose names may have dots and colons.
_READABLE = re.compile(r"[%|a-zA-Z0-9_.:-]+")
_RULE = "use one or more of the characters a-z A-Z 0-9 _ - % | . :"
_SHOWN = 255


def check_topic(topic: str) -> None:
    """Check the name of a topic to create or remove.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if it is blank, too long or has characters outside RocketMQ's rule.
    """
    result = validate_topic(topic)
    if not result.valid:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, result.remark)


def check_group(group: str, max_length: int = GROUP_MAX_LENGTH) -> None:
    """Check the name of a group to create.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if it is blank, too long or has characters outside RocketMQ's rule.
    """
    result = validate_group(group, max_length)
    if not result.valid:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, result.remark)


def check_known_group(group: str) -> None:
    """Check the name of a group that may exist: brokers before 5.0 allowed longer ones.

    Raises:
        BrokerResponseError: INVALID_PARAMETER, as ``check_group``.
    """
    check_group(group, LEGACY_GROUP_MAX_LENGTH)


def check_client_group(group: str, connection: Connection) -> None:
    """Check that a peer may use a consumer group as its own.

    Raises:
        BrokerResponseError: NO_PERMISSION for a client that names a group of the broker's own, whose offsets record how
            far transactions are checked.
    """
    if is_system_group(group) and connection.audience is Audience.CLIENT:
        remark = f"the consumer group {group[:_SHOWN]} belongs to the broker; use a group of your own"
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)


def check_known_topic(topic: str) -> None:
    """Check the name of a topic that may exist.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if it has characters that no topic has.
    """
    if _READABLE.fullmatch(topic) is None:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"the topic {topic[:_SHOWN]!r} is illegal; {_RULE}")


def check_queue(topic: str, queue_id: int, count: int | None = None) -> None:
    """Check the number of a queue; ``count`` is the topic's number of queues, if known.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if the topic has characters that no topic has, or the number is negative
            or too large.
    """
    check_known_topic(topic)
    if count is not None and not 0 <= queue_id < count:
        remark = f"QueueId {queue_id} is illegal, topic {topic} has queues 0 to {count - 1}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
    if queue_id < 0:
        remark = f"the queueId {queue_id} of topic {topic} is illegal; use 0 or more"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
