"""Encoder of a batch of messages for one queue as records (MessageExtEncoder.encode of a MessageExtBatch).

The common fields are packed once, and the others go column by column through C loops: no bytecode runs for each
message.
"""

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
_BODY_LENGTH_SIZE: Final = 4
# totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset; sysFlag to preparedTransactionOffset, which the
# messages of a batch share; bodyLength. By ``sys_flag >> 4 & 3``, as RECORD_HEADS.
_HEADS: Final = tuple(Struct(f">iIIiiqq{head.size - SYS_FLAG_POSITION - _BODY_LENGTH_SIZE}si") for head in RECORD_HEADS)


class AppendBatch:
    """The records of a batch; their ``sizes`` are known before their offsets are.

    Args:
        message: fields that the messages have in common; its body and properties are ignored.
    """

    __slots__ = ("_block", "_body_lengths", "_message", "_parts", "_properties_lengths", "sizes", "total")

    def __init__(self, message: MessageExtBrokerInner, parts: BatchParts) -> None:
        self._message = message
        self._parts = parts
        self._block = topic_block(message.topic.encode())
        self._body_lengths = list(map(len, parts.bodies))
        self._properties_lengths = list(map(len, parts.properties))
        fixed = RECORD_HEADS[message.sys_flag >> 4 & _HOST_BITS].size + len(self._block) + PROPERTIES_LENGTH.size
        # Bytes of each record, and of all.
        self.sizes = [fixed + a + b for a, b in zip(self._body_lengths, self._properties_lengths, strict=True)]
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
        message, (flags, bodies, properties) = self._message, self._parts
        offsets = list(accumulate(self.sizes[:-1], initial=offset))
        heads = map(
            _HEADS[message.sys_flag >> 4 & _HOST_BITS].pack,
            self.sizes,
            repeat(magic_code(len(message.topic.encode()))),
            [crc & _CRC_BITS for crc in map(crc32, bodies)],
            repeat(message.queue_id),
            flags,
            range(queue_offset, queue_offset + len(bodies)),
            offsets,
            repeat(self._shared(store_timestamp, store_host)),
            self._body_lengths,
        )
        # Topic and properties length, between body and properties; few lengths differ.
        lengths = self._properties_lengths
        between = {length: self._block + PROPERTIES_LENGTH.pack(length) for length in set(lengths)}
        pieces = [b""] * (4 * len(bodies))
        pieces[0::4] = heads
        pieces[1::4] = bodies
        pieces[2::4] = map(between.__getitem__, lengths)
        pieces[3::4] = properties
        return b"".join(pieces), offsets

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
        return head[SYS_FLAG_POSITION:-_BODY_LENGTH_SIZE]
