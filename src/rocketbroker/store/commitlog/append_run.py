"""Encoder of messages of one topic that came together, each for a queue of its own, as records (MessageExtEncoder).

The common fields are packed once, and the others go column by column through C loops, as in ``AppendBatch``.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from struct import Struct
from typing import Final
from zlib import crc32

from rocketbroker.codec.message.message_encoder import (
    BORN_HOST_POSITION,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
)
from rocketbroker.store.commitlog.put_message import MessageRun

_HOST_BITS: Final = 3
_CRC_BITS: Final = 0x7FFFFFFF
_BODY_LENGTH_SIZE: Final = 4
# totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset, sysFlag, bornTimestamp; bornHost to
# preparedTransactionOffset, which the messages share; bodyLength. By ``sys_flag >> 4 & 3``, as RECORD_HEADS.
_HEADS: Final = tuple(
    Struct(f">iIIiiqqiq{head.size - BORN_HOST_POSITION - _BODY_LENGTH_SIZE}si") for head in RECORD_HEADS
)


class AppendRun:
    """The records of a run; their ``sizes`` are known before their offsets are.

    Args:
        run: the messages.
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
        """Return the records, back to back, and the CommitLog offset of each.

        Args:
            offset: CommitLog offset of the first record.
            queue_offsets: queue offsets of the messages.
            store_timestamp: store time in ms.
            store_host: the broker's address.
        """
        run = self._run
        offsets = list(accumulate(self.sizes[:-1], initial=offset))
        heads = map(
            _HEADS[run.sys_flag >> 4 & _HOST_BITS].pack,
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
