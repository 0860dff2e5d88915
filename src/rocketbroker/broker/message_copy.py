"""Copies of stored messages that are stored again: retries, delayed deliveries, dead letters."""

from typing import Final

from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    STOREHOSTADDRESS_V6_FLAG,
    host_flags,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import get_property, remove_property, replace_property
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

_HOST_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


def copy_message(
    found: MessageExt, topic: str, queue_id: int, store_host: bytes, *, properties: bytes, reconsume_times: int
) -> MessageExtBrokerInner:
    """Return a message with the body, flags and birth data of ``found`` for another queue.

    ``store_host`` is this broker's address; its kind (IPv4, IPv6) may differ from when ``found`` was stored.
    """
    return MessageExtBrokerInner(
        topic=topic,
        queue_id=queue_id,
        body=found.body,
        properties=properties,
        flag=found.flag,
        sys_flag=found.sys_flag & ~_HOST_FLAGS | host_flags(found.born_host, store_host),
        born_timestamp=found.born_timestamp,
        born_host=found.born_host,
        reconsume_times=reconsume_times,
    )


# Real topic and queue of a message that waits in a system topic: its properties REAL_TOPIC and REAL_QID.
#
# Half messages of transactions, messages with a delay level and timer messages have them.

REAL_TOPIC: Final = PROPERTY_REAL_TOPIC.encode()
REAL_QUEUE_ID: Final = PROPERTY_REAL_QUEUE_ID.encode()

# No queue has a higher number (int32), nor one with more digits.
_MOST_QUEUES: Final = 2**31
_MAX_DIGITS: Final = 10

#: Topic and queue.
Place = tuple[str, int]


def with_real_place(properties: bytes, topic: str, queue_id: int) -> bytes:
    """Return properties that name a real topic and queue."""
    return replace_property(replace_property(properties, REAL_TOPIC, topic.encode()), REAL_QUEUE_ID, b"%d" % queue_id)


def without_real_place(properties: bytes) -> bytes:
    """Return the properties without the real topic and queue."""
    return remove_property(remove_property(properties, REAL_TOPIC), REAL_QUEUE_ID)


def real_place(properties: bytes) -> Place | None:
    """Return the real topic and queue; ``None`` if the properties name none, or the half topic."""
    topic = (get_property(properties, REAL_TOPIC) or b"").decode("utf-8", "replace")
    queue_id = get_property(properties, REAL_QUEUE_ID) or b""
    if not (queue_id.isdigit() and len(queue_id) <= _MAX_DIGITS and int(queue_id) < _MOST_QUEUES):
        return None
    return (topic, int(queue_id)) if topic and topic != RMQ_SYS_TRANS_HALF_TOPIC else None
