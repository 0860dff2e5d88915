"""Redirect of messages with a delay level to the schedule topic (HookUtils.transformDelayLevelMessage)."""

from rocketbroker.broker.message.real_place import with_real_place
from rocketbroker.codec.message.message_const import PROPERTY_DELAY_TIME_LEVEL
from rocketbroker.codec.message.message_properties import get_property, replace_property
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    transaction_value,
)
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()

_MAX_DIGITS = 10


def delay_rewrite(message: MessageExtBrokerInner, max_delay_level: int) -> None:
    """Redirect a message with ``DELAY`` to queue level - 1 of SCHEDULE_TOPIC_XXXX; leave others alone.

    Its properties REAL_TOPIC and REAL_QID keep the real place. A level above ``max_delay_level`` counts as that one; 0
    and less mean no delay. Prepared and rolled-back messages of transactions are never delayed.

    Raises:
        BrokerResponseError: MESSAGE_ILLEGAL; the level is not a whole number.
    """
    value = get_property(message.properties, DELAY)
    if value is None or transaction_value(message.sys_flag) not in {TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE}:
        return
    level = _level_of(value)
    if level <= 0:
        return
    properties = message.properties
    if level > max_delay_level:
        level = max_delay_level
        properties = replace_property(properties, DELAY, str(level).encode())
    message.properties = with_real_place(properties, message.topic, message.queue_id)
    message.topic = RMQ_SYS_SCHEDULE_TOPIC
    message.queue_id = level - 1


def _level_of(value: bytes) -> int:
    digits = value.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise BrokerResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property DELAY is {value[:64]!r}; set it to a delay level (1, 2, ...)",
        )
    return int(value)
