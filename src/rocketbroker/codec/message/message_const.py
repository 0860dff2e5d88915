"""Names of properties, bits of sysFlag, and delay levels (MessageConst, MessageSysFlag, ScheduleMessageService)."""

import re
from typing import Final

from rocketbroker.common.errors import ConfigError

#: Separator of the keys in ``KEYS``.
KEY_SEPARATOR: Final = " "

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_BUYER_ID: Final = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG: Final = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG: Final = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG: Final = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: Final = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIMESTAMP: Final = "CONSUME_START_TIME"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
PROPERTY_DUP_INFO: Final = "DUP_INFO"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL: Final = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_POP_CK: Final = "POP_CK"
PROPERTY_POP_CK_OFFSET: Final = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_BORN_HOST: Final = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PROPERTY_CRC32: Final = "__CRC32#"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
PROPERTY_LITE_TOPIC: Final = "__LITE_TOPIC"
PROPERTY_PRIORITY: Final = "_SYS_MSG_PRIORITY_"


#: Names that clients must not use for properties of their own.
STRING_HASH_SET: Final[frozenset[str]] = frozenset(
    value for name, value in tuple(globals().items()) if name.startswith("PROPERTY_")
) - {
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
}

# Bits of a message's ``sysFlag`` (org.apache.rocketmq.common.sysflag.MessageSysFlag).
#
# bit 0        body is compressed
# bit 1        message has several tags
# bits 2-3     transaction: 0 none, 1 prepared, 2 commit, 3 rollback
# bit 4        born host is IPv6 (20 bytes instead of 8)
# bit 5        store host is IPv6
# bit 6        consumer must unwrap the body into inner messages
# bit 7        body is an inner batch
# bits 8-10    compression: 0 zlib of clients before 5.0, 1 LZ4 frame, 2 Zstandard, 3 zlib

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
COMPRESSION_LZ4_TYPE: Final = 0x100
COMPRESSION_ZSTD_TYPE: Final = 0x200
COMPRESSION_ZLIB_TYPE: Final = 0x300
COMPRESSION_TYPE_COMPARATOR: Final = 0x700
#: Bits that only the broker sets, the second for the record into which it turns a batch.
BROKER_FLAGS: Final = TRANSACTION_ROLLBACK_TYPE | INNER_BATCH_FLAG

#: Length in bytes of a host field: address and int32 port.
HOST_V4_LENGTH: Final = 8
HOST_V6_LENGTH: Final = 20


def transaction_value(sys_flag: int) -> int:
    """Return the transaction bits of ``sys_flag``: one of the ``TRANSACTION_*_TYPE`` values."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE


def compression_type(sys_flag: int) -> int:
    """Return the compression bits of ``sys_flag``: 0 or one of the ``COMPRESSION_*_TYPE`` values."""
    return sys_flag & COMPRESSION_TYPE_COMPARATOR


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """Return the IPv6 bits for hosts of these lengths."""
    born = BORNHOST_V6_FLAG if len(born_host) == HOST_V6_LENGTH else 0
    return born | (STOREHOSTADDRESS_V6_FLAG if len(store_host) == HOST_V6_LENGTH else 0)


# Most digits of a number; Java's int has no more.
_LONGEST_LEVEL: Final = 10
_TOO_LARGE: Final = 1 << 63
_PRIORITY: Final = re.compile(r"\+?[0-9]{1,19}")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> dict[int, int]:
    """Return the milliseconds by level, the first level being 1, from a text such as ``1s 5s 10m 2h``.

    Raises:
        ConfigError: A part is not a number with a unit.
    """
    table = {}
    for level, part in enumerate(text.split(), 1):
        number, unit = part[:-1], part[-1:]
        if unit not in _UNITS_MS or not (number.isascii() and number.isdigit()):
            raise ConfigError(
                f"messageDelayLevel: {part!r} is not a delay; write a number with s, m, h or d, as in 10s"
            )
        table[level] = int(number) * _UNITS_MS[unit]
    return table


def deliver_timestamp(levels: dict[int, int], level: int, store_timestamp: int) -> int:
    """Return the due time in ms of a message stored at ``store_timestamp``; an unknown level means 1 s.

    It is a long, as in Java: the level of a damaged record may be any number, and a time beyond a long wraps around.
    """
    return (store_timestamp + levels.get(level, 1000) + _TOO_LARGE) % (2 * _TOO_LARGE) - _TOO_LARGE


def level_of(raw: bytes) -> int:
    """Return a message's delay level from the value of its property; 0 if that is not a number."""
    return int(raw) if raw.isdigit() and len(raw) <= _LONGEST_LEVEL else 0


def priority_of(text: str | None) -> int | None:
    """Return a message's priority from the value of its property, ``None`` unless that is an int of Java from 0 on."""
    found = int(text) if text is not None and _PRIORITY.fullmatch(text) else None
    return found if found is not None and found < 1 << 31 else None
