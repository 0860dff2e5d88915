"""Several messages in one body: SEND_BATCH_MESSAGE (320) and inner batches (MessageDecoder.encodeMessages).

body    := message+
message := int32 totalSize, int32 magic (0), int32 bodyCRC (0), int32 flag,
           int32 bodyLength, body, int16 propertiesLength, properties
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import PROPERTIES_LENGTH
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import check_properties_length
from rocketbroker.common.errors import CodecError

_HEAD: Final = Struct(">iiiii")
_TOTAL_SIZE: Final = Struct(">i")
#: totalSize, flag and bodyLength.
SIZE_FLAG_LENGTH: Final = Struct(">i8xii")
#: Position of the body in a message of a batch.
INNER_BODY_POSITION: Final = _HEAD.size
#: Bytes of a message in a batch, without body and properties.
MIN_INNER_SIZE: Final = _HEAD.size + PROPERTIES_LENGTH.size


class BatchParts(msgspec.Struct, frozen=True, gc=False):
    """Messages of a batch by column: flag, body and raw properties, each as long as the batch.

    ``lengths`` are those of each body and of its properties if all messages have the same, else unknown.
    """

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    lengths: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def body_size(self) -> int:
        """Bytes of all bodies."""
        return self.lengths[0] * len(self.flags) if self.lengths else sum(map(len, self.bodies))

    def messages(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield flag, body and properties of each message."""
        return zip(self.flags, self.bodies, self.properties, strict=True)


def holds_more_than(body: ReadableBuffer, most: int) -> bool:
    """Return true if a body says that it has more messages than ``most``; a broken one may say anything.

    It reads no more than the lengths of so many messages.
    """
    if len(body) <= most * MIN_INNER_SIZE:
        return False
    end, size = 0, len(body) - MIN_INNER_SIZE
    for _ in range(most):
        (length,) = _TOTAL_SIZE.unpack_from(body, end)
        end += length
        if length < MIN_INNER_SIZE or end > size:
            return False
    return True


def split_batch(body: ReadableBuffer) -> BatchParts:
    """Return the messages in ``body``.

    Raises:
        CodecError: The batch is empty, or the lengths of a message, which the text names, do not add up.
    """
    data = bytes(body)
    if not data:
        raise CodecError("batch body is empty: at least one message is expected")
    return _split_alike(data) or _split_one_by_one(data)


def _split_alike(data: bytes) -> BatchParts | None:
    """Return the messages if all have the same lengths: this is common, and runs no bytecode per message."""
    if len(data) < MIN_INNER_SIZE:
        return None
    total_size, _, body_length = SIZE_FLAG_LENGTH.unpack_from(data)
    properties_length = total_size - body_length - MIN_INNER_SIZE
    if body_length < 0 or properties_length < 0 or len(data) % total_size:
        return None
    messages = _message_layout(body_length, properties_length).iter_unpack(data)
    sizes, flags, body_lengths, bodies, properties_lengths, properties = zip(*messages, strict=True)
    count = len(flags)
    alike = sizes.count(total_size), body_lengths.count(body_length), properties_lengths.count(properties_length)
    lengths = body_length, properties_length
    return BatchParts(flags, bodies, properties, lengths) if alike == (count, count, count) else None


@lru_cache(maxsize=64)
def _message_layout(body_length: int, properties_length: int) -> Struct:
    return Struct(f"{SIZE_FLAG_LENGTH.format}{body_length}sh{properties_length}s")


def _split_one_by_one(data: bytes) -> BatchParts:
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    add_flag, add_body, add_properties = flags.append, bodies.append, properties.append
    head, properties_length = SIZE_FLAG_LENGTH.unpack_from, PROPERTIES_LENGTH.unpack_from
    end, size = 0, len(data)
    while end < size:
        offset = end
        if size - offset < MIN_INNER_SIZE:
            raise _broken(
                len(flags), offset, f"{size - offset} bytes are left, but a message takes at least {MIN_INNER_SIZE}"
            )
        total_size, flag, body_length = head(data, offset)
        start = offset + _HEAD.size
        stop = start + body_length
        end += total_size
        if not start <= stop <= end - 2 <= size - 2:
            raise _broken(len(flags), offset, _wrong_sizes(total_size, body_length, size - offset))
        (length,) = properties_length(data, stop)
        if length != end - stop - 2:
            raise _broken(len(flags), offset, f"propertiesLength is {length} instead of {end - stop - 2}")
        add_flag(flag)
        add_body(data[start:stop])
        add_properties(data[stop + 2 : end])
    return BatchParts(flags, bodies, properties)


def _wrong_sizes(total_size: int, body_length: int, left: int) -> str:
    if MIN_INNER_SIZE <= total_size <= left:
        return f"bodyLength is {body_length} in a totalSize of {total_size}"
    return f"totalSize is {total_size}, but {left} bytes are left"


def encode_batch(messages: Iterable[tuple[int, ReadableBuffer, ReadableBuffer]]) -> bytes:
    """Return the body of a batch of messages given as flag, body and raw properties."""
    parts: list[ReadableBuffer] = []
    for flag, body, properties in messages:
        check_properties_length(properties)
        size = MIN_INNER_SIZE + len(body) + len(properties)
        parts += _HEAD.pack(size, 0, 0, flag, len(body)), body, PROPERTIES_LENGTH.pack(len(properties)), properties
    return b"".join(parts)


def unwrap_batch(message: MessageExt) -> list[MessageExt]:
    """Return the messages inside the record of a whole batch, each with its own queue offset, as consumers see them."""
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
        for index, (flag, body, properties) in enumerate(split_batch(message.body).messages())
    ]


def _broken(number: int, offset: int, cause: str) -> CodecError:
    return CodecError(f"message {number} of the batch, at byte {offset}: {cause}")
