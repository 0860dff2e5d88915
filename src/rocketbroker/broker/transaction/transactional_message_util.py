"""The messages of a transaction, each made of the one before (TransactionalMessageUtil, TransactionalMessageBridge).

half message    what the producer sent, in RMQ_SYS_TRANS_HALF_TOPIC; where it is to go is in REAL_TOPIC and REAL_QID
op message      in RMQ_SYS_TRANS_OP_HALF_TOPIC, tagged ``d``; its body is queue offsets of half messages that are ended
real message    what consumers get once the transaction is committed
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketbroker.broker.message.message_copy import copy_message
from rocketbroker.broker.message.real_place import Place, with_real_place, without_real_place
from rocketbroker.broker.schedule.delay_rewrite import DELAY
from rocketbroker.broker.timer.timer_rewrite import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from rocketbroker.codec.message.message_const import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import (
    MAX_PROPERTIES_LENGTH,
    get_property,
    replace_property,
)
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    host_flags,
)
from rocketbroker.codec.message.topic_validator import (
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

#: The group whose consumer offsets say how far half and op messages are dealt with.
CID_SYS_RMQ_TRANS: Final = "CID_RMQ_SYS_TRANS"
#: The only queue of both topics.
QUEUE_ID: Final = 0
REMOVE_TAG: Final = "d"
OFFSET_SEPARATOR: Final = ","

TRAN_MSG: Final = PROPERTY_TRANSACTION_PREPARED.encode()
PGROUP: Final = PROPERTY_PRODUCER_GROUP.encode()
UNIQ_KEY: Final = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
CHECK_TIMES: Final = PROPERTY_TRANSACTION_CHECK_TIMES.encode()
PREPARED_QUEUE_OFFSET: Final = PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET.encode()
_TRANSACTION_ID: Final = PROPERTY_TRANSACTION_ID.encode()
_IMMUNITY: Final = PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS.encode()
_TIMERS: Final = TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS
# What a copy of a half message may have more than the first: two names, two numbers and their separators.
_COPY_ROOM: Final = len(CHECK_TIMES) + len(PREPARED_QUEUE_OFFSET) + 2 * (19 + 2)
_MAX_DIGITS: Final = 10

# Which transaction it is, over all copies of its half message: producer group, UNIQ_KEY, born timestamp.
TransactionKey = tuple[bytes, bytes, int]


def is_transaction(message: MessageExtBrokerInner) -> bool:
    """Return whether a sent message is the first half of a transaction.

    A message that old clients send to a retry topic may still have TRAN_MSG, and is not one.
    """
    if (get_property(message.properties, TRAN_MSG) or b"").lower() != b"true":
        return False
    return not (message.reconsume_times > 0 and _has_delay_level(message.properties))


def to_half_message(message: MessageExtBrokerInner) -> None:
    """Send the message to the half topic, as RocketMQ stores it there (parseHalfMessageInner).

    Raises:
        BrokerResponseError: MESSAGE_ILLEGAL, nobody could end the transaction, or it is to be delivered later.
    """
    properties = message.properties
    if get_property(properties, PGROUP) is None:
        raise _illegal("has no property PGROUP, the producer group, which alone may end it")
    if _has_delay_level(properties) or any(get_property(properties, name) is not None for name in _TIMERS):
        raise _illegal("cannot be delayed; leave out DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC and TIMER_DELAY_MS")
    unique_key = get_property(properties, UNIQ_KEY)
    if unique_key is not None:
        properties = replace_property(properties, _TRANSACTION_ID, unique_key)
    properties = with_real_place(properties, message.topic, message.queue_id)
    if len(properties) > MAX_PROPERTIES_LENGTH - _COPY_ROOM:
        raise _illegal(f"has {len(properties)} bytes of properties, the limit is {MAX_PROPERTIES_LENGTH - _COPY_ROOM}")
    message.properties = properties
    message.sys_flag &= ~TRANSACTION_ROLLBACK_TYPE
    message.topic = RMQ_SYS_TRANS_HALF_TOPIC
    message.queue_id = QUEUE_ID


def transaction_key(half: MessageExt) -> TransactionKey | None:
    """Return the transaction of a half message, its copy or its real message; ``None`` when it names none."""
    group = get_property(half.properties_bytes, PGROUP)
    unique_key = get_property(half.properties_bytes, UNIQ_KEY)
    return None if group is None or unique_key is None else (group, unique_key, half.born_timestamp)


def is_copy(half: MessageExt) -> bool:
    """Return whether a half message was put back at the end of its queue, or resumed after it was discarded."""
    raw = half.properties_bytes
    return get_property(raw, CHECK_TIMES) is not None or get_property(raw, PREPARED_QUEUE_OFFSET) is not None


def check_times(half: MessageExt) -> int:
    """Return how often the producer group was asked for its outcome."""
    return max(_number(get_property(half.properties_bytes, CHECK_TIMES)), 0)


def with_check_times(half: MessageExt, times: int) -> MessageExt:
    """Return a half message that says how often its producer group was asked."""
    properties = replace_property(half.properties_bytes, CHECK_TIMES, b"%d" % times)
    return msgspec.structs.replace(half, properties_bytes=properties, _properties=None)


def immunity_ms(half: MessageExt, timeout_ms: int) -> int | None:
    """Return how long after its birth a half message is not checked; ``None`` when it does not say.

    At least ``timeout_ms`` (transactionTimeOut), which also stands for what is no number.
    """
    value = get_property(half.properties_bytes, _IMMUNITY)
    return None if value is None else max(_number(value) * 1000, timeout_ms)


def real_message(half: MessageExt, place: Place, store_host: bytes) -> MessageExtBrokerInner:
    """Return the message of a committed transaction for consumers (EndTransactionProcessor.endMessageTransaction)."""
    properties = without_real_place(half.properties_bytes)
    message = copy_message(half, *place, store_host, properties=properties, reconsume_times=half.reconsume_times)
    message.sys_flag = message.sys_flag & ~TRANSACTION_ROLLBACK_TYPE | TRANSACTION_COMMIT_TYPE
    message.prepared_transaction_offset = half.commit_log_offset
    return message


def checked_copy(half: MessageExt, times: int, store_host: bytes) -> MessageExtBrokerInner:
    """Return the half message for the end of its queue, checked so many times (renewHalfMessageInner)."""
    return _half_copy(half, replace_property(half.properties_bytes, CHECK_TIMES, b"%d" % times), store_host)


def immune_copy(half: MessageExt, store_host: bytes) -> MessageExtBrokerInner:
    """Return the half message for the end of its queue, not checked yet (renewImmunityHalfMessageInner)."""
    first = get_property(half.properties_bytes, PREPARED_QUEUE_OFFSET) or b"%d" % half.queue_offset
    return _half_copy(half, replace_property(half.properties_bytes, PREPARED_QUEUE_OFFSET, first), store_host)


def discarded_message(half: MessageExt, store_host: bytes) -> MessageExtBrokerInner:
    """Return the half message for TRANS_CHECK_MAX_TIME_TOPIC, checked in vain too often (toMessageExtBrokerInner)."""
    return copy_message(
        half,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        QUEUE_ID,
        store_host,
        properties=half.properties_bytes,
        reconsume_times=half.reconsume_times,
    )


def op_message(offsets: Sequence[int], now_ms: int, store_host: bytes) -> MessageExtBrokerInner:
    """Return the op message that says which half messages are ended (makeOpMessageInner)."""
    return MessageExtBrokerInner(
        topic=RMQ_SYS_TRANS_OP_HALF_TOPIC,
        queue_id=QUEUE_ID,
        body="".join(f"{offset}{OFFSET_SEPARATOR}" for offset in offsets).encode(),
        properties=f"WAIT\x01true\x02TAGS\x01{REMOVE_TAG}\x02".encode(),
        sys_flag=host_flags(store_host, store_host),
        born_timestamp=now_ms,
        born_host=store_host,
    )


def ended_offsets(op: MessageExt) -> list[int]:
    """Return the queue offsets of half messages that an op message ends.

    Raises:
        ValueError: It is no op message, or its body is not numbers with commas.
    """
    if op.tags != REMOVE_TAG:
        raise ValueError(f"its tag is {op.tags!r}, not {REMOVE_TAG!r}")
    return [int(text) for text in op.body.decode("ascii").split(OFFSET_SEPARATOR) if text]


def _half_copy(half: MessageExt, properties: bytes, store_host: bytes) -> MessageExtBrokerInner:
    return copy_message(
        half,
        RMQ_SYS_TRANS_HALF_TOPIC,
        QUEUE_ID,
        store_host,
        properties=properties,
        reconsume_times=half.reconsume_times,
    )


def _has_delay_level(properties: bytes) -> bool:
    return (get_property(properties, DELAY) or b"0") != b"0"


def _number(value: bytes | None) -> int:
    """Return a property's whole number, or -1."""
    return int(value) if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS else -1


def _illegal(why: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, f"the transaction message {why}")
