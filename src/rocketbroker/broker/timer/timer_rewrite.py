"""Redirect of messages with a delivery time, and the wheel's requests (TimerRequest)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from rocketbroker.broker.message_copy import REAL_TOPIC, Place, with_real_place
from rocketbroker.broker.schedule_message_service import DELAY, delay_rewrite
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.codec.message.message_const import TRANSACTION_COMMIT_TYPE, TRANSACTION_NOT_TYPE, transaction_value
from rocketbroker.codec.message.message_properties import get_property, remove_property, replace_property
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

TIMER_DELIVER_MS: Final = b"TIMER_DELIVER_MS"
TIMER_DELAY_SEC: Final = b"TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = b"TIMER_DELAY_MS"
TIMER_DEL_UNIQKEY: Final = b"TIMER_DEL_UNIQKEY"
TIMER_OUT_MS: Final = b"TIMER_OUT_MS"

# The first of these properties that is present counts.
_TIMES: Final = ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1), (TIMER_DELIVER_MS, 0))
# A number with more digits exceeds the range of a long.
_MAX_DIGITS: Final = 19
_LONG_MAX: Final = 2**63 - 1
_SHOWN: Final = 32


class TimerLimits(NamedTuple):
    """Limits of delivery times: the settings timerWheelEnable, timerMaxDelaySec, timerPrecisionMs."""

    enabled: bool
    max_delay_ms: int
    precision_ms: int


def forget_delivery_time(message: MessageExtBrokerInner) -> None:
    """Remove the delivery times of a message with a delay level: the level counts."""
    for name, _ in _TIMES:
        message.properties = remove_property(message.properties, name)


def timer_rewrite(message: MessageExtBrokerInner, limits: TimerLimits, now_ms: int) -> None:
    """Redirect a message with a future delivery time to the timer's topic; leave others alone.

    Its properties REAL_TOPIC and REAL_QID keep the real place. TIMER_OUT_MS is its slot, the last multiple of the
    precision before its time. It is delivered one precision later, so never early.

    Raises:
        BrokerResponseError: MESSAGE_ILLEGAL if the time is not a number, is beyond the limit, or is that of a cancel
            and has passed; SYSTEM_ERROR if timer messages are disabled.
    """
    found = _delivery_time(message.properties, now_ms)
    # A message that was delivered is not delayed again, for example when its consumer forwards it unchanged.
    if found is None or get_property(message.properties, TIMER_OUT_MS) is not None or message.topic == TIMER_TOPIC:
        return
    if not limits.enabled:
        raise BrokerResponseError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false; set it to true",
        )
    deliver_ms = found
    if deliver_ms - now_ms > limits.max_delay_ms:
        raise _illegal(f"its delay is {deliver_ms - now_ms} ms", limits)
    if deliver_ms <= now_ms:
        if get_property(message.properties, TIMER_DEL_UNIQKEY) is not None:
            raise _illegal(f"it cancels a message that was due {now_ms - deliver_ms} ms ago", limits)
        return
    slot_ms = (deliver_ms - 1) // limits.precision_ms * limits.precision_ms
    properties = replace_property(message.properties, TIMER_OUT_MS, b"%d" % slot_ms)
    message.properties = with_real_place(properties, message.topic, message.queue_id)
    message.topic = TIMER_TOPIC
    message.queue_id = 0


def _delivery_time(properties: bytes, now_ms: int) -> int | None:
    """Return the delivery time in ms that the properties name; ``None`` without one."""
    for name, unit_ms in _TIMES:
        value = get_property(properties, name)
        if value is not None:
            return _number(name, value) * unit_ms + now_ms if unit_ms else _number(name, value)
    return None


def _number(name: bytes, value: bytes) -> int:
    digits = value.removeprefix(b"-")
    if digits.isdigit() and len(digits) <= _MAX_DIGITS and int(digits) <= _LONG_MAX:
        return int(value)
    raise BrokerResponseError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"timer message illegal, the property {name.decode()} is {value[:_SHOWN]!r}; set it to a whole number",
    )


def _illegal(measured: str, limits: TimerLimits) -> BrokerResponseError:
    return BrokerResponseError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"timer message illegal, the delay time should not be bigger than the max delay {limits.max_delay_ms}ms; or if "
        f"set del msg, the delay time should be bigger than the current time: {measured} (timerMaxDelaySec)",
    )


_ENQUEUE_MS: Final = b"TIMER_ENQUEUE_MS"
_DEQUEUE_MS: Final = b"TIMER_DEQUEUE_MS"
_ROLL_TIMES: Final = b"TIMER_ROLL_TIMES"
_UNIQUE_KEY: Final = b"UNIQ_KEY"
_MAX_TIME_DIGITS: Final = 18
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
    if place is None or not (out_ms.isdigit() and len(out_ms) <= _MAX_TIME_DIGITS):
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
    number = int(times) + 1 if times.isdigit() and len(times) <= _MAX_TIME_DIGITS else 1
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


class HandleScheduleMessage:
    """Redirects messages with a delay level or a delivery time before they are stored.

    Args:
        config: the limits of timer messages.
        max_delay_level: highest level of messageDelayLevel.
        precision_ms: returns the precision of the timer.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, max_delay_level: int, precision_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._clock = clock
        self._max_delay_level = max_delay_level
        self._precision_ms = precision_ms

    def __call__(self, message: MessageExtBrokerInner) -> None:
        """Change topic, queue and properties of a message with a delay level or a delivery time.

        With both, the level counts. Prepared and rolled-back messages of transactions are left alone.

        Raises:
            BrokerResponseError: See ``delay_rewrite`` and ``timer_rewrite``.
        """
        if transaction_value(message.sys_flag) not in {TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE}:
            return
        if (get_property(message.properties, DELAY) or b"0") != b"0":
            waits = message.topic
            delay_rewrite(message, self._max_delay_level)
            if message.topic != waits:
                forget_delivery_time(message)
                return
        config = self._config
        max_delay_ms = config.timer_max_delay_sec * 1000
        timer_rewrite(
            message, TimerLimits(config.timer_wheel_enable, max_delay_ms, self._precision_ms()), self._clock.time_ms()
        )
