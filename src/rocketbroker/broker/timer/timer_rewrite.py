"""Redirect of messages with a delivery time to the timer's topic (HookUtils.transformTimerMessage)."""

from typing import Final, NamedTuple

from rocketbroker.broker.message.real_place import with_real_place
from rocketbroker.broker.topic.system_topics import TIMER_TOPIC
from rocketbroker.codec.message.message_properties import get_property, remove_property, replace_property
from rocketbroker.codec.remoting.response_code import ResponseCode
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
