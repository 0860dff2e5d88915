"""Checks of names, bodies and offsets in requests, before anything is looked up, created or removed."""

import re
from typing import TypeVar

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import (
    GROUP_MAX_LENGTH,
    LEGACY_GROUP_MAX_LENGTH,
    is_system_group,
    validate_group,
    validate_topic,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

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


T = TypeVar("T", bound=RemotingSerializable)

# Bodies of official clients are plain JSON, which msgspec decodes at some 300 MB per second; the other dialects are
# decoded in Python, this many values in 15 ms on a quiet machine.
MOST_VALUES = 5_000


def read_body(body: Buffer, kind: type[T], *, largest: int | None = None) -> T:
    """Decode the body of a request.

    Args:
        body: the body.
        kind: what it is.
        largest: its largest size in bytes, below that of a frame.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if it is too large or not JSON, or a field is missing or of the wrong type;
            the remark names the field.
    """
    size = memoryview(body).nbytes
    if largest is not None and size > largest:
        text = f"the body of the request has {size:,} bytes; a {kind.__name__} has {largest:,} at most"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
    try:
        return kind.decode(body, most_values=MOST_VALUES)
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None


def check_offset_range(queues: ConsumeQueueStore, topic: str, queue_id: int, offset: int) -> None:
    """Check that a message has the offset, or that the next one will get it.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if it is before the first message or beyond the next one.
    """
    first, end = queues.min_offset_in_queue(topic, queue_id), queues.max_offset_in_queue(topic, queue_id)
    if not first <= offset <= end:
        remark = f"Target offset {offset} not in consume queue range [{first}-{end}]"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{remark} of topic {topic}, queue {queue_id}")


def existing_topic(topics: TopicConfigManager, topic: str) -> TopicConfig:
    """Return the topic with a name.

    Raises:
        BrokerResponseError: TOPIC_NOT_EXIST, or INVALID_PARAMETER for a name that no topic can have.
    """
    check_known_topic(topic)
    config = topics.select(topic)
    if config is None:
        raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


def illegal_queue(queue_id: int, topic: TopicConfig, connection: Connection) -> str:
    """Return the remark for a queue that a consumer cannot read, as the topic has no such number."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.remote_address}]"
    )


def check_existing_group(groups: SubscriptionGroupManager, group: str) -> None:
    """Check that a group exists, without creating it.

    Raises:
        BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, or INVALID_PARAMETER for a name that no group can have.
    """
    check_known_group(group)
    if not groups.contains(group):
        raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
