"""Requests of messages in the timer's queue, and the properties of their copies (TimerMessageStore)."""

from typing import Final, NamedTuple

from rocketbroker.broker.message.real_place import REAL_TOPIC, Place
from rocketbroker.broker.timer.timer_rewrite import TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from rocketbroker.codec.message.message_properties import get_property, replace_property

_ENQUEUE_MS: Final = b"TIMER_ENQUEUE_MS"
_DEQUEUE_MS: Final = b"TIMER_DEQUEUE_MS"
_ROLL_TIMES: Final = b"TIMER_ROLL_TIMES"
_UNIQUE_KEY: Final = b"UNIQ_KEY"
_MAX_DIGITS: Final = 18
_DELETES: Final = TIMER_DEL_UNIQKEY + b"\x01"

#: Real topic and unique key, which identify the message to cancel.
DeleteKey = tuple[bytes, bytes]


class TimerRequest(NamedTuple):
    """Delivery time of a message (``out_ms``, its TIMER_OUT_MS), and whether it cancels another."""

    out_ms: int
    is_delete: bool


def timer_request(properties: bytes, place: Place | None) -> TimerRequest | None:
    """Return the request of a message for ``place``; ``None`` if it lacks the time or the place."""
    out_ms = get_property(properties, TIMER_OUT_MS) or b""
    if place is None or not (out_ms.isdigit() and len(out_ms) <= _MAX_DIGITS):
        return None
    return TimerRequest(int(out_ms), _DELETES in properties and get_property(properties, TIMER_DEL_UNIQKEY) is not None)


def stamped(properties: bytes, store_timestamp: int, precision_ms: int, now_ms: int) -> bytes:
    """Return the properties of a copy; REAL_TOPIC and REAL_QID stay in them, as in RocketMQ."""
    enqueued = store_timestamp // precision_ms * precision_ms
    if _ENQUEUE_MS not in properties and properties.endswith(b"\x02"):
        return b"%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (properties, enqueued, now_ms)
    return replace_property(replace_property(properties, _ENQUEUE_MS, b"%d" % enqueued), _DEQUEUE_MS, b"%d" % now_ms)


def rolled(properties: bytes) -> bytes:
    """Return the properties of a copy for the timer's own topic, for a message that is not due yet."""
    times = get_property(properties, _ROLL_TIMES) or b"0"
    number = int(times) + 1 if times.isdigit() and len(times) <= _MAX_DIGITS else 1
    return replace_property(properties, _ROLL_TIMES, b"%d" % number)


def postponed(properties: bytes, out_ms: int) -> bytes:
    """Return the properties of a copy with another delivery time."""
    return replace_property(properties, TIMER_OUT_MS, b"%d" % out_ms)


def delete_key(properties: bytes) -> DeleteKey:
    """Return the key that a cancelling message names, with or without the topic (appendTopicForTimerDeleteKey)."""
    topic = get_property(properties, REAL_TOPIC) or b""
    named = get_property(properties, TIMER_DEL_UNIQKEY) or b""
    return topic, named.removeprefix(topic + b"+")


def key_of(properties: bytes) -> DeleteKey:
    """Return the key that cancels a message."""
    return get_property(properties, REAL_TOPIC) or b"", get_property(properties, _UNIQUE_KEY) or b""
