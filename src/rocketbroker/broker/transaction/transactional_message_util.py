"""Messages of a transaction, each made from the one before (TransactionalMessageUtil, TransactionalMessageBridge).

half message    as the producer sent it, in RMQ_SYS_TRANS_HALF_TOPIC; REAL_TOPIC and REAL_QID name its destination
op message      in RMQ_SYS_TRANS_OP_HALF_TOPIC, tagged ``d``; its body has the queue offsets of ended half messages
real message    delivered to consumers after the transaction is committed
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketbroker.broker.message_copy import Place, copy_message, with_real_place, without_real_place
from rocketbroker.broker.schedule_message_service import DELAY
from rocketbroker.broker.timer.timer_rewrite import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from rocketbroker.codec.message.message_const import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    host_flags,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import (
    get_property,
    remove_property,
    replace_property,
)
from rocketbroker.codec.message.topic_validator import (
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

#: Group whose consumer offsets are the progress in the half and op queues.
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
_MAX_DIGITS: Final = 10

# Identity of a transaction over all copies of its half message: producer group, UNIQ_KEY, born timestamp.
TransactionKey = tuple[bytes, bytes, int]


def is_transaction(message: MessageExtBrokerInner) -> bool:
    """Return true if a sent message is the half message of a transaction.

    Old clients may leave TRAN_MSG in a message that they send to a retry topic; such a message is not.
    """
    if (get_property(message.properties, TRAN_MSG) or b"").lower() != b"true":
        return False
    return not (message.reconsume_times > 0 and _has_delay_level(message.properties))


def to_half_message(message: MessageExtBrokerInner) -> None:
    """Redirect the message to the half topic, as RocketMQ stores it there (parseHalfMessageInner).

    Raises:
        BrokerResponseError: MESSAGE_ILLEGAL; no producer group could end the transaction, or it is delayed.
    """
    properties = message.properties
    if get_property(properties, PGROUP) is None:
        raise _illegal("lacks the property PGROUP; set it to the producer group that ends the transaction")
    if _has_delay_level(properties) or any(get_property(properties, name) is not None for name in _TIMERS):
        raise _illegal("cannot be delayed; remove DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC and TIMER_DELAY_MS")
    unique_key = get_property(properties, UNIQ_KEY)
    if unique_key is not None:
        properties = replace_property(properties, _TRANSACTION_ID, unique_key)
    properties = with_real_place(properties, message.topic, message.queue_id)
    message.properties = properties
    message.sys_flag &= ~TRANSACTION_ROLLBACK_TYPE
    message.topic = RMQ_SYS_TRANS_HALF_TOPIC
    message.queue_id = QUEUE_ID


def transaction_key(half: MessageExt) -> TransactionKey | None:
    """Return the transaction of a half message, its copy or its real message; ``None`` if it names none."""
    group = get_property(half.properties_bytes, PGROUP)
    unique_key = get_property(half.properties_bytes, UNIQ_KEY)
    return None if group is None or unique_key is None else (group, unique_key, half.born_timestamp)


def is_copy(half: MessageExt) -> bool:
    """Return true if a half message is a copy: put back at the end of its queue, or resumed after it was discarded."""
    raw = half.properties_bytes
    return get_property(raw, CHECK_TIMES) is not None or get_property(raw, PREPARED_QUEUE_OFFSET) is not None


def check_times(half: MessageExt) -> int:
    """Return the number of times that the producer group was asked for the outcome."""
    return max(_number(get_property(half.properties_bytes, CHECK_TIMES)), 0)


def with_check_times(half: MessageExt, times: int) -> MessageExt:
    """Return the half message with its number of checks set."""
    properties = replace_property(half.properties_bytes, CHECK_TIMES, b"%d" % times)
    return msgspec.structs.replace(half, properties_bytes=properties, _properties=None)


def immunity_ms(half: MessageExt, timeout_ms: int) -> int | None:
    """Return the ms from its birth during which a half message is not checked; ``None`` if it names no time.

    A shorter time, or a value that is not a number, counts as ``timeout_ms`` (transactionTimeOut).
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
    """Return the copy for the end of the queue, with its number of checks (renewHalfMessageInner)."""
    return _half_copy(half, replace_property(half.properties_bytes, CHECK_TIMES, b"%d" % times), store_host)


def immune_copy(half: MessageExt, store_host: bytes) -> MessageExtBrokerInner:
    """Return the copy for the end of the queue, not checked yet (renewImmunityHalfMessageInner)."""
    first = get_property(half.properties_bytes, PREPARED_QUEUE_OFFSET) or b"%d" % half.queue_offset
    return _half_copy(half, replace_property(half.properties_bytes, PREPARED_QUEUE_OFFSET, first), store_host)


def discarded_message(half: MessageExt, store_host: bytes) -> MessageExtBrokerInner:
    """Return the copy for TRANS_CHECK_MAX_TIME_TOPIC after the last check (toMessageExtBrokerInner)."""
    return copy_message(
        half,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        QUEUE_ID,
        store_host,
        properties=half.properties_bytes,
        reconsume_times=half.reconsume_times,
    )


def escaped_half(half: MessageExt, place: Place, store_host: bytes) -> MessageExtBrokerInner:
    """Return a half message as its producer sent it, for another master (buildTransactionalMessageFromHalfMessage)."""
    properties = without_real_place(half.properties_bytes)
    for name in (PREPARED_QUEUE_OFFSET, CHECK_TIMES):
        properties = remove_property(properties, name)
    properties = replace_property(properties, TRAN_MSG, b"true")
    message = copy_message(half, *place, store_host, properties=properties, reconsume_times=half.reconsume_times)
    message.sys_flag |= TRANSACTION_PREPARED_TYPE
    return message


def op_message(offsets: Sequence[int], now_ms: int, store_host: bytes) -> MessageExtBrokerInner:
    """Return the op message that ends these half messages (makeOpMessageInner)."""
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
    """Return the queue offsets of the half messages that an op message ends.

    Raises:
        ValueError: It is not an op message, or its body is not numbers with commas.
    """
    if op.tags != REMOVE_TAG:
        raise ValueError(f"its tag is {op.tags!r} instead of {REMOVE_TAG!r}")
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
    """Return the whole number in a property, or -1."""
    return int(value) if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS else -1


def _illegal(why: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, f"the transaction message {why}")
