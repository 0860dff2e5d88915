"""Comparison of records with the fields expected at their place (CommitLog.checkMessageAndReturnSize).

It serves pulls: nothing is decoded, and a sound record of a small message costs about a microsecond.

A record is sound if totalSize, magic code, queueId, queueOffset and physicalOffset match its place, its lengths add up,
the topic is the queue's, and bodyCRC matches the body. No checksum of the format covers the rest: flags, times, hosts
and properties.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_encoder import BODY_POSITION, RECORD_HEADS, topic_block
from rocketbroker.common.errors import CorruptRecordError

# totalSize, magic, bodyCRC, queueId, queueOffset, physicalOffset, sysFlag; bodyLength where both hosts are IPv4.
_EXPECTED: Final = Struct(">iIIi4xqqi44xi")
_BODY_LENGTH: Final = Struct(">i")
_IPV6: Final = 0x30
_CRC_BITS: Final = 0x7FFFFFFF
_NAMES: Final = ("totalSize", "magic code", "queueId", "queueOffset", "physicalOffset")


# A message as its queue names it: queue offset, CommitLog offset, size, tags code. A bare tuple, because one is made
# for each message read.
ExpectedRecord = tuple[int, int, int, int]


class QueuedRecord(NamedTuple):
    """An ``ExpectedRecord`` with names, for those that are looked up one by one."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


@lru_cache(maxsize=1024)
def _behind_head(body_length: int, topic_length: int) -> Callable[[ReadableBuffer, int], tuple[bytes, bytes, int]]:
    """Return an unpacker of body, topic and length of the properties: quicker than a slice of each."""
    return Struct(f">{body_length}s{topic_length}sH").unpack_from


def _behind_ipv6(data: ReadableBuffer, at: int, rest: int, sys_flag: int) -> tuple[int, int, int]:
    """Return body position, bytes left for body and properties, and body length of a record with an IPv6 host."""
    longer = RECORD_HEADS[sys_flag >> 4 & 3].size - BODY_POSITION
    body_at = at + BODY_POSITION + longer
    return body_at, rest - longer, _BODY_LENGTH.unpack_from(data, body_at - 4)[0] if longer <= rest else -1


class RecordCheck:
    """Checks records of one queue.

    Args:
        queue_id: number of the queue.
        magic: magic code of records of the topic.
        topic: topic with its length before it, as records hold it (``topic_block``).
    """

    __slots__ = ("_magic", "_queue_id", "_topic_block", "least_size")

    def __init__(self, queue_id: int, magic: int, topic: bytes) -> None:
        self._queue_id = queue_id
        self._magic = magic
        self._topic_block = topic
        # Bytes of a record with an empty body and no properties: no record is smaller.
        self.least_size = BODY_POSITION + len(topic) + 2

    def unsound(
        self,
        data: memoryview,
        positions: Iterable[int],
        expected: Sequence[ExpectedRecord],
        is_wanted: Callable[[ExpectedRecord, bytes], bool] | None = None,
    ) -> list[int]:
        """Return the numbers of the records that are damaged, unexpected or unwanted.

        Args:
            data: buffer with all the records.
            positions: start of each record in ``data``, which holds the expected bytes of each.
            expected: entry of each record; no size is below ``least_size``.
            is_wanted: called with the properties of each sound record.
        """
        unpack, magic, queue_id, topic = _EXPECTED.unpack_from, self._magic, self._queue_id, self._topic_block
        least, known_length = self.least_size, -1
        wrong: list[int] = []
        for number, (at, record) in enumerate(zip(positions, expected, strict=True)):
            queue_offset, physical_offset, size, _ = record
            total, found_magic, crc, found_id, found_offset, found_at, sys_flag, body_length = unpack(data, at)
            body_at, rest = at + BODY_POSITION, size - least
            if sys_flag & _IPV6:
                body_at, rest, body_length = _behind_ipv6(data, at, rest, sys_flag)
            rest -= body_length
            if (
                total != size
                or found_at != physical_offset
                or found_offset != queue_offset
                or found_id != queue_id
                or found_magic != magic
                or rest < 0
                or body_length < 0
            ):
                wrong.append(number)
                continue
            if body_length != known_length:
                behind_head, known_length = _behind_head(body_length, len(topic)), body_length
            body, found_topic, properties_length = behind_head(data, body_at)
            if (
                properties_length != rest
                or found_topic != topic
                or (body_length and crc32(body) & _CRC_BITS != crc)
                or (is_wanted is not None and not is_wanted(record, bytes(data[at + size - rest : at + size])))
            ):
                wrong.append(number)
        return wrong

    def is_head(self, head: bytes, expected: ExpectedRecord) -> bool:
        """Return true if the first 88 bytes of a record identify the expected one; its content may be damaged."""
        queue_offset, physical_offset, size, _ = expected
        total, magic, _, queue_id, found_offset, found_at, _, _ = _EXPECTED.unpack(head)
        return (total, magic, queue_id, found_offset, found_at) == (
            size,
            self._magic,
            self._queue_id,
            queue_offset,
            physical_offset,
        )

    def describe(self, data: memoryview, at: int, record: ExpectedRecord) -> str:
        """Return the fault of a record at position ``at`` of ``data``; empty for a sound record."""
        expected_queue_offset, expected_offset, size, _ = record
        total, magic, _, queue_id, queue_offset, physical_offset, _, _ = _EXPECTED.unpack_from(data, at)
        found = (total, magic, queue_id, queue_offset, physical_offset)
        wanted = (size, self._magic, self._queue_id, expected_queue_offset, expected_offset)
        if not any(data[at : at + BODY_POSITION]):
            return "it holds only zeros"
        differ = [
            f"{name} is {value}, {right} is expected"
            for name, value, right in zip(_NAMES, found, wanted, strict=True)
            if value != right
        ]
        if differ:
            return ", ".join(differ)
        try:
            topic = decode_record(data, at, end=at + size, check_crc=True, read_body=False).topic
        except CorruptRecordError as error:
            return str(error)
        return "" if topic_block(topic.encode()) == self._topic_block else f"its topic is {topic!r}"
