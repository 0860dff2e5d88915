"""Decoder of CommitLog records, from files and from answers to pulls (MessageDecoder).

The checks are those of CommitLog.checkMessageAndReturnSize. The byte grammar is in ``message_encoder.py``. Each length
is checked against the rest of the record, and the record against the rest of the buffer, before a byte is read; a
misfit is a :class:`CorruptRecordError` that names the position.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.compression import decompress as decompress_body
from rocketbroker.codec.message.message_encoder import (
    BLANK,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    PROPERTIES_LENGTH,
    RECORD_HEAD,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_sys_flag import COMPRESSED_FLAG
from rocketbroker.common.errors import CodecError, CorruptRecordError

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
        raise _wrong_crc(buffer[body_start:body_end], fields[2], offset)
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


def _wrong_crc(body: ReadableBuffer, expected: int, offset: int) -> CorruptRecordError:
    return corrupt(offset, f"bodyCRC is 0x{expected:08X}, but the body has 0x{crc32(body) & 0x7FFFFFFF:08X}")


def _unpack(body: bytes, sys_flag: int, offset: int) -> bytes:
    try:
        return decompress_body(body, sys_flag)
    except CodecError as error:
        raise corrupt(offset, str(error)) from error
