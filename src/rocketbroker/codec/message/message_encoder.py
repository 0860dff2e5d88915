"""Encoder of CommitLog records (org.apache.rocketmq.store.MessageExtEncoder).

int32 totalSize         int32 magic         int32 bodyCRC (crc32 & 0x7FFFFFFF)
int32 queueId           int32 flag          int64 queueOffset     int64 physicalOffset
int32 sysFlag           int64 bornTimestamp [4|16] bornIp int32 bornPort
int64 storeTimestamp    [4|16] storeIp      int32 storePort
int32 reconsumeTimes    int64 preparedTransactionOffset
int32 bodyLength        body
uint8 (V1) | int16 (V2) topicLength         topic
int16 propertiesLength  properties

BLANK: int32 rest of the file, int32 magic, the rest of the file undefined
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - the struct module's one error
from typing import Final
from zlib import crc32

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import MAX_PROPERTIES_LENGTH
from rocketbroker.common.errors import CodecError

MESSAGE_MAGIC_CODE_V1: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
BLANK_MAGIC_CODE: Final = 0xCBD43194

TOTAL_SIZE_POSITION: Final = 0
MAGIC_CODE_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
FLAG_POSITION: Final = 16
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_TIMESTAMP_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48
#: The positions below hold if both hosts are IPv4; each IPv6 host before a field moves it by 12.
STORE_TIMESTAMP_POSITION: Final = 56
STORE_HOST_POSITION: Final = 64
RECONSUME_TIMES_POSITION: Final = 72
PREPARED_TRANSACTION_OFFSET_POSITION: Final = 76
BODY_LENGTH_POSITION: Final = 84
BODY_POSITION: Final = 88

#: A topic longer than this many bytes makes the record V2.
MAX_TOPIC_LENGTH_V1: Final = 127
MAX_TOPIC_LENGTH: Final = 32767

#: totalSize … bodyLength, both hosts IPv4: 88 bytes.
RECORD_HEAD: Final = Struct(">iIIiiqqiq8sq8siqi")
#: The same for every mix of hosts; index with ``sys_flag >> 4 & 3`` (bit 0: born IPv6, bit 1: store IPv6).
RECORD_HEADS: Final = (
    RECORD_HEAD,
    Struct(">iIIiiqqiq20sq8siqi"),
    Struct(">iIIiiqqiq8sq20siqi"),
    Struct(">iIIiiqqiq20sq20siqi"),
)
_HOST_LENGTHS: Final = ((8, 8), (20, 8), (8, 20), (20, 20))
#: queueOffset and physicalOffset, at QUEUE_OFFSET_POSITION: they tie a record to its place.
OFFSETS: Final = Struct(">qq")
BLANK: Final = Struct(">iI")
BLANK_LENGTH: Final = 8
PROPERTIES_LENGTH: Final = Struct(">h")


def body_crc(body: ReadableBuffer) -> int:
    """Return the CRC-32 of ``body`` as records store it, without the sign bit."""
    return crc32(body) & 0x7FFFFFFF


def record_size(body_len: int, topic_len: int, props_len: int, *, sys_flag: int = 0) -> int:
    """Return the bytes of a record with these lengths; ``sys_flag`` determines those of the hosts."""
    fixed = RECORD_HEADS[sys_flag >> 4 & 3].size + (3 if topic_len <= MAX_TOPIC_LENGTH_V1 else 4)
    return fixed + body_len + topic_len + props_len


@lru_cache(maxsize=1024)
def topic_block(topic: bytes) -> bytes:
    """Return ``topic`` with its length before it, one byte (V1) or two (V2), as records hold it."""
    length = len(topic)
    if length > MAX_TOPIC_LENGTH:
        raise CodecError(f"topic takes {length} bytes; a record holds at most {MAX_TOPIC_LENGTH}")
    return length.to_bytes(1 if length <= MAX_TOPIC_LENGTH_V1 else 2, "big") + topic


def magic_code(topic_len: int) -> int:
    """Return the magic code of a record with a topic of ``topic_len`` bytes."""
    return MESSAGE_MAGIC_CODE_V1 if topic_len <= MAX_TOPIC_LENGTH_V1 else MESSAGE_MAGIC_CODE_V2


# One argument per field: an object for them would be created and discarded for every message.
def encode_record(  # noqa: PLR0913, PLR0917
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: ReadableBuffer,
    topic_bytes: bytes,
    properties_bytes: ReadableBuffer,
    crc: int | None = None,
) -> bytes:
    """Encode a record. Times are in ms, hosts 8 or 20 bytes as ``sys_flag`` says, ``crc`` is ``body_crc(body)``."""
    props_len = len(properties_bytes)
    _check_lengths(sys_flag, born_host, store_host, props_len)
    head, topic = RECORD_HEADS[sys_flag >> 4 & 3], topic_block(topic_bytes)
    try:
        fixed = head.pack(
            head.size + len(body) + len(topic) + 2 + props_len,
            magic_code(len(topic_bytes)),
            body_crc(body) if crc is None else crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except StructError as cause:
        raise CodecError(f"a number of the message does not fit its field: {cause}") from cause
    return b"".join((fixed, body, topic, PROPERTIES_LENGTH.pack(props_len), properties_bytes))


def _check_lengths(sys_flag: int, born_host: bytes, store_host: bytes, props_len: int) -> None:
    # struct pads or cuts an ``s`` field silently, so that a host of the wrong length would go unnoticed.
    if (len(born_host), len(store_host)) != _HOST_LENGTHS[sys_flag >> 4 & 3]:
        raise CodecError(
            f"hosts of {len(born_host)} and {len(store_host)} bytes do not fit the IPv6 bits of sysFlag {sys_flag}, "
            f"which require {_HOST_LENGTHS[sys_flag >> 4 & 3]}"
        )
    if props_len > MAX_PROPERTIES_LENGTH:
        raise CodecError(f"properties take {props_len} bytes; a record holds at most {MAX_PROPERTIES_LENGTH}")


def encode_message(message: MessageExt) -> bytes:
    """Return ``message`` as a record again, from its raw properties and stored body."""
    return encode_record(
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.commit_log_offset,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        message.topic.encode(),
        message.properties_bytes,
    )


def encode_blank(size: int) -> bytes:
    """Return the 8 bytes that close a commit-log file with ``size`` bytes left in it, at least 8."""
    if size < BLANK_LENGTH:
        raise CodecError(f"a BLANK needs {BLANK_LENGTH} bytes, but {size} are left")
    return BLANK.pack(size, BLANK_MAGIC_CODE)
