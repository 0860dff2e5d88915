"""CommitLog records as bytes and as MessageExt (MessageExtEncoder, MessageDecoder).

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

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.compression import decompress as decompress_body
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import MAX_PROPERTIES_LENGTH
from rocketbroker.common.errors import CodecError, CorruptRecordError

MESSAGE_MAGIC_CODE_V1: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
BLANK_MAGIC_CODE: Final = 0xCBD43194

BODY_CRC_POSITION: Final = 8
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_HOST_POSITION: Final = 48
#: The positions below hold if both hosts are IPv4; each IPv6 host before a field moves it by 12.
STORE_TIMESTAMP_POSITION: Final = 56
STORE_HOST_POSITION: Final = 64
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


# Records are decoded from files and from answers to pulls. The checks are those of
# CommitLog.checkMessageAndReturnSize: each length is compared with the rest of the record, and the record with the rest
# of the buffer, before a byte is read. A misfit is a :class:`CorruptRecordError` that names the position.

_TOPIC_LENGTH_SIZES: Final = {MESSAGE_MAGIC_CODE_V1: 1, MESSAGE_MAGIC_CODE_V2: 2}


def peek(buffer: ReadableBuffer, offset: int = 0, *, end: int | None = None) -> tuple[int, int]:
    """Return totalSize and magic code at ``offset``, unchecked; ``(0, 0)`` where nothing was written."""
    limit = len(buffer) if end is None else min(end, len(buffer))
    if offset < 0 or limit - offset < BLANK.size:
        raise corrupt(
            offset, f"{max(limit - offset, 0)} bytes are left, but totalSize and magic code take {BLANK.size}"
        )
    total_size, magic = BLANK.unpack_from(buffer, offset)
    return total_size, magic


def decode_record(
    buffer: ReadableBuffer,
    offset: int = 0,
    *,
    end: int | None = None,
    check_crc: bool = False,
    read_body: bool = True,
    decompress: bool = False,
) -> MessageExt:
    """Return the record at ``offset``, which ends after ``store_size`` bytes, at ``end`` at the latest.

    ``check_crc`` compares the stored body with its checksum. ``decompress`` decompresses the body and clears the
    compressed bit of sysFlag, as Java clients do. A BLANK or unwritten space is an error: call :func:`peek` first.
    """
    total_size, magic = peek(buffer, offset, end=end)
    stop = offset + total_size
    head = _head_of(buffer, offset, total_size, magic, len(buffer) if end is None else min(end, len(buffer)))
    fields = head.unpack_from(buffer, offset)
    # No function for each part: clients decode every message that they consume.
    body_start, body_length = offset + head.size, fields[14]
    body_end = body_start + body_length
    topic_start = body_end + (1 if magic == MESSAGE_MAGIC_CODE_V1 else 2)
    room = stop - topic_start - PROPERTIES_LENGTH.size
    if body_length < 0 or room < 0:
        raise corrupt(
            offset, f"bodyLength is {body_length}, but at most {room + body_length} bytes are left in the record"
        )
    topic_length = buffer[body_end] if magic == MESSAGE_MAGIC_CODE_V1 else buffer[body_end] << 8 | buffer[body_end + 1]
    if topic_length > room:
        raise corrupt(offset, f"topicLength is {topic_length}, but at most {room} bytes are left")
    topic_end = topic_start + topic_length
    (properties_length,) = PROPERTIES_LENGTH.unpack_from(buffer, topic_end)
    if properties_length != room - topic_length:
        left = room - topic_length
        raise corrupt(offset, f"propertiesLength is {properties_length}, but totalSize leaves {left} bytes for them")
    body, sys_flag = b"", fields[7]
    if check_crc and crc32(buffer[body_start:body_end]) & 0x7FFFFFFF != fields[2]:
        found = body_crc(buffer[body_start:body_end])
        raise corrupt(offset, f"bodyCRC is 0x{fields[2]:08X}, but the body has 0x{found:08X}")
    if read_body:
        body = bytes(buffer[body_start:body_end])
        if decompress and body and sys_flag & COMPRESSED_FLAG:
            body, sys_flag = _unpack(body, sys_flag, offset), sys_flag & ~COMPRESSED_FLAG
    return MessageExt(
        str(buffer[topic_start:topic_end], "utf-8", "replace"),
        fields[3],
        fields[5],
        fields[6],
        total_size,
        body,
        bytes(buffer[stop - properties_length : stop]),
        fields[4],
        sys_flag,
        fields[2],
        fields[8],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
        fields[13],
        body_length,
        magic,
    )


def decode_messages(
    buffer: ReadableBuffer, *, check_crc: bool = True, read_body: bool = True, decompress: bool = True
) -> list[MessageExt]:
    """Return all records in the body of an answer to a pull, query or view, which they fill to its last byte."""
    messages = []
    offset, size = 0, len(buffer)
    while offset < size:
        message = decode_record(buffer, offset, check_crc=check_crc, read_body=read_body, decompress=decompress)
        messages.append(message)
        offset += message.store_size
    return messages


def corrupt(offset: int, cause: str) -> CorruptRecordError:
    """Return the error for a record at ``offset`` of its buffer."""
    return CorruptRecordError(f"message record at {offset}: {cause}")


def _head_of(buffer: ReadableBuffer, offset: int, total_size: int, magic: int, limit: int) -> Struct:
    if magic not in _TOPIC_LENGTH_SIZES:
        what = "that of a BLANK" if magic == BLANK_MAGIC_CODE else "unknown"
        raise corrupt(offset, f"magic code 0x{magic:08X} is {what}; 0xDAA320A7 (V1) or 0xDAA320AB (V2) is expected")
    if total_size > limit - offset:
        raise corrupt(offset, f"totalSize is {total_size}, but {limit - offset} bytes are left")
    rest = _TOPIC_LENGTH_SIZES[magic] + PROPERTIES_LENGTH.size
    if total_size >= RECORD_HEAD.size:
        head = RECORD_HEADS[buffer[offset + SYS_FLAG_POSITION + 3] >> 4 & 3]
        if total_size >= head.size + rest:
            return head
    raise corrupt(offset, f"totalSize is {total_size}, but the fixed fields alone take more")


def _unpack(body: bytes, sys_flag: int, offset: int) -> bytes:
    try:
        return decompress_body(body, sys_flag)
    except CodecError as error:
        raise corrupt(offset, str(error)) from error
