"""Encodes a batch of messages for one queue as records (MessageExtEncoder.encode of a MessageExtBatch).

Heads are numpy columns and the records are joined from whole lists, so that the steps that run once a message are few.
"""

from collections.abc import Sequence
from itertools import chain
from zlib import crc32

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.message.message_encoder import PROPERTIES_LENGTH, RECORD_HEADS, magic_code, topic_block
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD
from rocketbroker.store.put_message import BatchPart, MessageExtBrokerInner

_HOST_BITS = 3
_CRC_BITS = 0x7FFFFFFF
_HEAD_BYTES = np.dtype(f"V{RECORD_HEAD.itemsize}")


class AppendBatch:
    """The records of a batch; their ``sizes`` are known before it is known where they will lie.

    Args:
        message: what the messages have in common; its body and properties are not looked at.
        parts: flag, body and raw properties of each message; at least one.
    """

    __slots__ = ("_bodies", "_body_lengths", "_flags", "_message", "properties", "sizes", "total")

    def __init__(self, message: MessageExtBrokerInner, parts: Sequence[BatchPart]) -> None:
        self._message = message
        self._flags, self._bodies, self.properties = zip(*parts, strict=True)
        count = len(parts)
        fixed = RECORD_HEADS[message.sys_flag >> 4 & _HOST_BITS].size + len(topic_block(message.topic.encode())) + 2
        self._body_lengths = np.fromiter(map(len, self._bodies), np.int64, count)
        # Bytes of each record, shape (n,), and of all.
        self.sizes = self._body_lengths + np.fromiter(map(len, self.properties), np.int64, count) + fixed
        self.total = int(self.sizes.sum())

    def encode(
        self, offset: int, queue_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[int]]:
        """The records, back to back, and the CommitLog offset of each.

        Args:
            offset: CommitLog offset of the first record.
            queue_offset: queue offset of the first message.
            store_timestamp: ms.
            store_host: the broker's address.
        """
        offsets = np.cumsum(self.sizes) - self.sizes + offset
        if self._message.sys_flag >> 4 & _HOST_BITS:
            heads = self._packed_heads(offsets, queue_offset, store_timestamp, store_host)
        else:
            heads = self._column_heads(offsets, queue_offset, store_timestamp, store_host)
        block = topic_block(self._message.topic.encode())
        lengths = list(map(len, self.properties))
        # Topic and properties length, which stand between body and properties; few lengths differ.
        between = {length: block + PROPERTIES_LENGTH.pack(length) for length in set(lengths)}
        pieces = zip(heads, self._bodies, map(between.__getitem__, lengths), self.properties, strict=True)
        return b"".join(chain.from_iterable(pieces)), offsets.tolist()

    def _head(self, store_timestamp: int, store_host: bytes) -> list[int | bytes]:
        """The fields of a head, in order; zero where the messages differ."""
        message = self._message
        return [
            0,
            magic_code(len(message.topic.encode())),
            0,
            message.queue_id,
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
        ]

    def _column_heads(
        self, offsets: npt.NDArray[np.int64], queue_offset: int, store_timestamp: int, store_host: bytes
    ) -> list[bytes]:
        """Heads of records whose two hosts are IPv4."""
        count = len(offsets)
        common = RECORD_HEADS[0].pack(*self._head(store_timestamp, store_host))
        heads = np.frombuffer(bytearray(common * count), RECORD_HEAD)
        heads["total_size"] = self.sizes
        heads["body_crc"] = np.fromiter(map(crc32, self._bodies), np.uint32, count) & _CRC_BITS
        heads["flag"] = self._flags
        heads["queue_offset"] = np.arange(queue_offset, queue_offset + count)
        heads["physical_offset"] = offsets
        heads["body_length"] = self._body_lengths
        found: list[bytes] = heads.view(_HEAD_BYTES).tolist()
        return found

    def _packed_heads(
        self, offsets: npt.NDArray[np.int64], queue_offset: int, store_timestamp: int, store_host: bytes
    ) -> list[bytes]:
        """Heads of records with an IPv6 host, one by one."""
        head = RECORD_HEADS[self._message.sys_flag >> 4 & _HOST_BITS]
        fields = self._head(store_timestamp, store_host)
        heads = []
        columns = zip(self.sizes.tolist(), offsets.tolist(), self._bodies, self._flags, strict=True)
        for number, (size, offset, body, flag) in enumerate(columns):
            fields[0], fields[2], fields[4] = size, crc32(body) & _CRC_BITS, flag
            fields[5], fields[6], fields[14] = queue_offset + number, offset, len(body)
            heads.append(head.pack(*fields))
        return heads
