"""Encoders of messages that came together as records (MessageExtEncoder).

The common fields are packed once, and the others column by column in C loops: no bytecode runs for each message.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from struct import Struct
from typing import Final
from zlib import crc32

from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_decoder import (
    BORN_HOST_POSITION,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
    magic_code,
    topic_block,
)
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, MessageRun

_HOST_BITS: Final = 3
_CRC_BITS: Final = 0x7FFFFFFF
_BODY_LENGTH: Final = Struct(">i")
# totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset; sysFlag to bodyLength, which few messages of a
# batch have alone. By ``sys_flag >> 4 & 3``, as RECORD_HEADS.
_BATCH_HEADS: Final = tuple(Struct(f">iIIiiqq{head.size - SYS_FLAG_POSITION}s") for head in RECORD_HEADS)


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
        """Return the records, back to back, and the CommitLog offset of each."""
        message, parts = self._message, self._parts
        if parts.lengths:
            offsets = list(range(offset, offset + self.total, self.sizes[0]))
        else:
            offsets = list(accumulate(self.sizes[:-1], initial=offset))
        ends, betweens = self._lengths(self._shared(store_timestamp, store_host))
        heads = map(
            _BATCH_HEADS[message.sys_flag >> 4 & _HOST_BITS].pack,
            self.sizes,
            repeat(magic_code(len(message.topic.encode()))),
            map(_CRC_BITS.__and__, map(crc32, parts.bodies)),
            repeat(message.queue_id),
            parts.flags,
            range(queue_offset, queue_offset + len(offsets)),
            offsets,
            ends,
        )
        pieces = [b""] * (4 * len(offsets))
        pieces[0::4] = heads
        pieces[1::4] = parts.bodies
        pieces[2::4] = betweens
        pieces[3::4] = parts.properties
        return b"".join(pieces), offsets

    def _lengths(self, shared: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return the end of each head, and the bytes between each body and its properties."""
        parts = self._parts
        if parts.lengths:
            body_length, properties_length = parts.lengths
            count = len(parts)
            return [shared + _BODY_LENGTH.pack(body_length)] * count, [self._between(properties_length)] * count
        # Few lengths differ.
        body_lengths, properties_lengths = list(map(len, parts.bodies)), list(map(len, parts.properties))
        end = {length: shared + _BODY_LENGTH.pack(length) for length in set(body_lengths)}
        between = {length: self._between(length) for length in set(properties_lengths)}
        return [end[length] for length in body_lengths], [between[length] for length in properties_lengths]

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


_BODY_LENGTH_SIZE: Final = 4
# totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset, sysFlag, bornTimestamp; bornHost to
# preparedTransactionOffset, which the messages share; bodyLength. By ``sys_flag >> 4 & 3``, as RECORD_HEADS.
_RUN_HEADS: Final = tuple(
    Struct(f">iIIiiqqiq{head.size - BORN_HOST_POSITION - _BODY_LENGTH_SIZE}si") for head in RECORD_HEADS
)


class AppendRun:
    """The records of a run; their ``sizes`` are known before their offsets are.

    Args:
        block: their topic as in records.
        magic: magic code of records with that topic.
    """

    __slots__ = ("_block", "_body_lengths", "_magic", "_properties_lengths", "_run", "sizes", "total")

    def __init__(self, run: MessageRun, block: bytes, magic: int) -> None:
        self._run = run
        self._block = block
        self._magic = magic
        self._body_lengths = list(map(len, run.bodies))
        self._properties_lengths = list(map(len, run.properties))
        fixed = RECORD_HEADS[run.sys_flag >> 4 & _HOST_BITS].size + len(block) + PROPERTIES_LENGTH.size
        # Bytes of each record, and of all.
        self.sizes = [fixed + a + b for a, b in zip(self._body_lengths, self._properties_lengths, strict=True)]
        self.total = sum(self.sizes)

    def encode(
        self, offset: int, queue_offsets: Sequence[int], store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[int]]:
        """Return the records, back to back, and the CommitLog offset of each."""
        run = self._run
        offsets = list(accumulate(self.sizes[:-1], initial=offset))
        heads = map(
            _RUN_HEADS[run.sys_flag >> 4 & _HOST_BITS].pack,
            self.sizes,
            repeat(self._magic),
            [crc & _CRC_BITS for crc in map(crc32, run.bodies)],
            run.queue_ids,
            repeat(run.flag),
            queue_offsets,
            offsets,
            repeat(run.sys_flag),
            run.born_timestamps,
            repeat(self._shared(store_timestamp, store_host)),
            self._body_lengths,
        )
        # Topic and properties length, between body and properties; few lengths differ.
        lengths = self._properties_lengths
        between = {length: self._block + PROPERTIES_LENGTH.pack(length) for length in set(lengths)}
        pieces = [b""] * (4 * len(lengths))
        pieces[0::4] = heads
        pieces[1::4] = run.bodies  # type: ignore[assignment]  # joined below
        pieces[2::4] = map(between.__getitem__, lengths)
        pieces[3::4] = run.properties
        return b"".join(pieces), offsets

    def _shared(self, store_timestamp: int, store_host: bytes) -> bytes:
        """Return the bytes of a head from bornHost to preparedTransactionOffset."""
        run = self._run
        head = RECORD_HEADS[run.sys_flag >> 4 & _HOST_BITS].pack(
            *repeat(0, 7), run.sys_flag, 0, run.born_host, store_timestamp, store_host, run.reconsume_times, 0, 0
        )
        return head[BORN_HOST_POSITION:-_BODY_LENGTH_SIZE]
