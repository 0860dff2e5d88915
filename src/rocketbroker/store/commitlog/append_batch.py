"""Encoder of a batch of messages for one queue as records (MessageExtEncoder.encode of a MessageExtBatch).

The common fields are packed once, and the others go column by column through C loops: no bytecode runs for each
message.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from struct import Struct
from typing import Final
from zlib import crc32

from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_encoder import (
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
    magic_code,
    topic_block,
)
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

_HOST_BITS: Final = 3
_CRC_BITS: Final = 0x7FFFFFFF
_BODY_LENGTH: Final = Struct(">i")
# totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset; sysFlag to preparedTransactionOffset, which the
# messages of a batch share. By ``sys_flag >> 4 & 3``, as RECORD_HEADS.
_HEADS: Final = tuple(Struct(f">iIIiiqq{head.size - SYS_FLAG_POSITION - _BODY_LENGTH.size}s") for head in RECORD_HEADS)


class AppendBatch:
    """The records of a batch; their ``sizes`` are known before their offsets are.

    Args:
        message: fields that the messages have in common; its body and properties are ignored.
    """

    __slots__ = ("_block", "_message", "_parts", "sizes", "total")

    def __init__(self, message: MessageExtBrokerInner, parts: BatchParts) -> None:
        self._message = message
        self._parts = parts
        self._block = topic_block(message.topic.encode())
        fixed = RECORD_HEADS[message.sys_flag >> 4 & _HOST_BITS].size + len(self._block) + PROPERTIES_LENGTH.size
        # Bytes of each record, and of all.
        if parts.lengths:
            self.sizes = [fixed + sum(parts.lengths)] * len(parts)
        else:
            self.sizes = [fixed + len(body) + len(raw) for _, body, raw in parts.messages()]
        self.total = sum(self.sizes)

    def encode(
        self, offset: int, queue_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[int]]:
        """Return the records, back to back, and the CommitLog offset of each.

        Args:
            offset: CommitLog offset of the first record.
            queue_offset: queue offset of the first message.
            store_timestamp: store time in ms.
            store_host: the broker's address.
        """
        message, parts = self._message, self._parts
        offsets = list(accumulate(self.sizes[:-1], initial=offset))
        heads = map(
            _HEADS[message.sys_flag >> 4 & _HOST_BITS].pack,
            self.sizes,
            repeat(magic_code(len(message.topic.encode()))),
            [crc & _CRC_BITS for crc in map(crc32, parts.bodies)],
            repeat(message.queue_id),
            parts.flags,
            range(queue_offset, queue_offset + len(offsets)),
            offsets,
            repeat(self._shared(store_timestamp, store_host)),
        )
        body_lengths, betweens = self._lengths()
        pieces = [b""] * (5 * len(offsets))
        pieces[0::5] = heads
        pieces[1::5] = body_lengths
        pieces[2::5] = parts.bodies
        pieces[3::5] = betweens
        pieces[4::5] = parts.properties
        return b"".join(pieces), offsets

    def _lengths(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return for each message what stands before the body, and between body and properties."""
        parts = self._parts
        if parts.lengths:
            body_length, properties_length = parts.lengths
            count = len(parts)
            return [_BODY_LENGTH.pack(body_length)] * count, [self._between(properties_length)] * count
        # Few lengths differ.
        lengths = list(map(len, parts.properties))
        between = {length: self._between(length) for length in set(lengths)}
        return list(map(_BODY_LENGTH.pack, map(len, parts.bodies))), list(map(between.__getitem__, lengths))

    def _between(self, properties_length: int) -> bytes:
        return self._block + PROPERTIES_LENGTH.pack(properties_length)

    def _shared(self, store_timestamp: int, store_host: bytes) -> bytes:
        """Return the bytes of a head from sysFlag to preparedTransactionOffset."""
        message = self._message
        head = RECORD_HEADS[message.sys_flag >> 4 & _HOST_BITS].pack(
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            store_timestamp,
            store_host,
            message.reconsume_times,
            0,
            0,
        )
        return head[SYS_FLAG_POSITION : -_BODY_LENGTH.size]
