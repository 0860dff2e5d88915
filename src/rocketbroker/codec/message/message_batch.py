"""Several messages in one body: SEND_BATCH_MESSAGE (320) and inner batches.
Answers to ``MessageDecoder.encodeMessages`` and ``decodeMessages``.

    body    := message+
    message := int32 totalSize, int32 magic (0), int32 bodyCRC (0), int32 flag,
               int32 bodyLength, body, int16 propertiesLength, properties
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeVar

import msgspec

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_encoder import PROPERTIES_LENGTH
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import check_properties_length
from rocketbroker.common.errors import CodecError

_HEAD: Final = Struct(">iiiii")
_MIN_SIZE: Final = _HEAD.size + PROPERTIES_LENGTH.size

B = TypeVar("B", bytes, bytearray, memoryview)


def split_batch(body: B) -> list[tuple[int, B, B]]:
    """Flag, body and raw properties of each message in ``body``, as slices of it (no copies of a memoryview).

    :class:`CodecError` names the message whose lengths do not add up, and an empty batch.
    """
    messages: list[tuple[int, B, B]] = []
    offset, size = 0, len(body)
    while offset < size:
        if size - offset < _MIN_SIZE:
            raise _broken(len(messages), offset, f"{size - offset} bytes are left, a message takes {_MIN_SIZE}")
        total_size, _, _, flag, body_length = _HEAD.unpack_from(body, offset)
        if not _MIN_SIZE <= total_size <= size - offset:
            raise _broken(len(messages), offset, f"totalSize is {total_size}, {size - offset} bytes are left")
        if not 0 <= body_length <= total_size - _MIN_SIZE:
            raise _broken(len(messages), offset, f"bodyLength is {body_length} in a totalSize of {total_size}")
        start = offset + _HEAD.size
        stop = start + body_length
        (length,) = PROPERTIES_LENGTH.unpack_from(body, stop)
        offset += total_size
        if length != offset - stop - 2:
            raise _broken(len(messages), offset - total_size, f"propertiesLength is {length}, not {offset - stop - 2}")
        messages.append((flag, body[start:stop], body[stop + 2 : offset]))
    if not messages:
        raise CodecError("batch body is empty: at least one message is expected")
    return messages


def encode_batch(messages: Iterable[tuple[int, ReadableBuffer, ReadableBuffer]]) -> bytes:
    """Body of a batch of messages given as flag, body and raw properties."""
    parts: list[ReadableBuffer] = []
    for flag, body, properties in messages:
        check_properties_length(properties)
        size = _MIN_SIZE + len(body) + len(properties)
        parts += _HEAD.pack(size, 0, 0, flag, len(body)), body, PROPERTIES_LENGTH.pack(len(properties)), properties
    return b"".join(parts)


def unwrap_batch(message: MessageExt) -> list[MessageExt]:
    """The messages inside a record that holds a whole batch, each with its own queue offset, as consumers see them."""
    return [
        msgspec.structs.replace(
            message,
            queue_offset=message.queue_offset + index,
            flag=flag,
            body=body,
            body_length=len(body),
            properties_bytes=properties,
            _properties=None,
        )
        for index, (flag, body, properties) in enumerate(split_batch(message.body))
    ]


def _broken(number: int, offset: int, cause: str) -> CodecError:
    return CodecError(f"message {number} of the batch, at byte {offset}: {cause}")
