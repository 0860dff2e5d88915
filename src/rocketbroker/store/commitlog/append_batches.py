"""Encoder of batches that came together as records, for messages that differ in body and unique id only."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final
from zlib import crc32

import numpy as np

from rocketbroker.codec.message.message_batch import INNER_BODY_POSITION
from rocketbroker.codec.message.message_decoder import (
    BODY_CRC_POSITION,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH,
    QUEUE_OFFSET_POSITION,
    RECORD_HEADS,
)
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.store.commitlog.put_message import BatchRun

_HOST_BITS: Final = 3
_CRC_BITS: Final = 0x7FFFFFFF


class AppendBatches:
    """The records of batches, all of one size.

    Args:
        block: their topic as in records.
        magic: magic code of records with that topic.

    Attributes:
        size: bytes of each record.
        total: bytes of all records.
    """

    __slots__ = ("_block", "_head", "_magic", "_run", "size", "total")

    def __init__(self, run: BatchRun, block: bytes, magic: int) -> None:
        self._run = run
        self._magic = magic
        messages = run.messages
        self._head = RECORD_HEADS[run.sys_flag >> 4 & _HOST_BITS]
        # Topic and length of the properties, between body and properties.
        self._block = block + PROPERTIES_LENGTH.pack(len(messages.properties))
        self.size = self._head.size + messages.body_length + len(self._block) + len(messages.properties)
        self.total = self.size * len(messages.rows)

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of the longest record."""
        return (self.size,)

    def encode(
        self, offset: int, queue_offsets: Sequence[int], store_timestamp: int, store_host: bytes
    ) -> tuple[memoryview, range]:
        """Return the records, back to back, and the CommitLog offset of each."""
        run, messages, size = self._run, self._run.messages, self.size
        rows, count = messages.rows, len(messages.rows)
        records = np.empty((count, size), np.uint8)
        start = self._head.size
        heads = np.frombuffer(self._heads(queue_offsets, store_timestamp, store_host), np.uint8)
        records[:, :start] = heads.reshape(-1, start).repeat(run.counts, axis=0)
        end = start + messages.body_length
        records[:, start:end] = rows[:, INNER_BODY_POSITION : INNER_BODY_POSITION + messages.body_length]
        records[:, end:] = np.frombuffer(self._block + messages.properties, np.uint8)
        key_start, key_end = messages.unique_key
        # The properties end both the record and the message of the batch.
        from_end = slice(key_start - len(messages.properties), key_end - len(messages.properties) or None)
        records[:, from_end] = rows[:, from_end]
        offsets = range(offset, offset + self.total, size)
        fields = np.ndarray((count,), _varying_fields(size), records)
        fields["body_crc"] = np.fromiter(map(crc32, messages.bodies()), np.uint32, count) & _CRC_BITS
        numbers = chain.from_iterable(map(range, queue_offsets, map(int.__add__, queue_offsets, run.counts)))
        fields["queue_offset"] = np.fromiter(numbers, np.int64, count)
        fields["physical_offset"] = np.arange(offset, offset + self.total, size)
        return records.reshape(-1).data, offsets

    def _heads(self, queue_offsets: Sequence[int], store_timestamp: int, store_host: bytes) -> bytes:
        """Return the head of each batch's first record, still without CRC and physical offset."""
        run, pack = self._run, self._head.pack
        return b"".join(
            pack(
                self.size,
                self._magic,
                0,
                queue_id,
                run.messages.flag,
                queue_offset,
                0,
                run.sys_flag,
                born_timestamp,
                run.born_host,
                store_timestamp,
                store_host,
                run.reconsume_times,
                0,
                run.messages.body_length,
            )
            for queue_id, queue_offset, born_timestamp in zip(
                run.queue_ids, queue_offsets, run.born_timestamps, strict=True
            )
        )


@lru_cache(maxsize=64)
def _varying_fields(size: int) -> np.dtype[np.void]:
    """Return the fields in which the records of a batch differ, in records of ``size`` bytes."""
    fields = {
        "body_crc": (">u4", BODY_CRC_POSITION),
        "queue_offset": (">i8", QUEUE_OFFSET_POSITION),
        "physical_offset": (">i8", PHYSICAL_OFFSET_POSITION),
    }
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


def queue_entries(offset: int, size: int, count: int, tags_code: int) -> bytes:
    """Return the queue entries of records that follow each other from ``offset`` on, with equal sizes and tags."""
    entries = np.empty(count, CONSUME_QUEUE_ENTRY)
    entries["commit_log_offset"] = np.arange(offset, offset + count * size, size)
    entries["size"] = size
    entries["tags_code"] = tags_code
    return entries.tobytes()
