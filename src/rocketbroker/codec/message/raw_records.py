"""Records as they lie in a buffer, undecoded: their check against the fields expected, and their properties."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias
from zlib import crc32

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import (
    BODY_LENGTH_POSITION,
    BODY_POSITION,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
    decode_record,
    topic_block,
)
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.common.errors import CorruptRecordError

if TYPE_CHECKING:
    from rocketbroker.codec.message.property_slices import Slices

# Comparison of records with the fields expected at their place (CommitLog.checkMessageAndReturnSize).
#
# It serves pulls: nothing is decoded, and a sound record of a small message costs about a microsecond.
#
# A record is sound if totalSize, magic code, queueId, queueOffset and physicalOffset match its place, its lengths add
# up, the topic is the queue's, and bodyCRC matches the body. No checksum of the format covers the rest: flags, times,
# hosts and properties.

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


#: Number of messages from which numpy is quicker; importing it takes longer than a broker may take to start.
MANY: Final = 24

#: Whole numbers: a list or a numpy array.
Numbers: TypeAlias = Any

# sysFlag, bodyLength: both hosts IPv4.
_FLAG_AND_LENGTH: Final = Struct(">i44xi")
_LENGTH: Final = Struct(">i")
_LENGTH_OF_LENGTH: Final = 2
_LONGER: Final = 12


class PropertyBlocks:
    """Properties of several messages: start of each in ``data``, and its length in bytes.

    ``starts`` and ``lengths`` are lists, or numpy arrays for ``MANY`` messages.
    """

    __slots__ = ("data", "lengths", "starts")

    def __init__(self, data: memoryview, starts: Numbers, lengths: Numbers) -> None:
        self.data = data
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def of(cls, raws: Sequence[bytes]) -> Self:
        """Return the blocks of messages whose properties are separate."""
        lengths = list(map(len, raws))
        starts = [sum(lengths[:number]) for number in range(len(raws))] if len(raws) < MANY else None
        data = memoryview(b"".join(raws))
        if starts is not None:
            return cls(data, starts, lengths)
        import numpy as np

        columns = np.array(lengths, np.int64)
        return cls(data, np.cumsum(columns) - columns, columns)

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, begin: int, size: int) -> PropertyBlocks:
        """Return the blocks from number ``begin`` on that have ``size`` bytes together at most, and at least one."""
        lengths = self.lengths[begin : begin + size]
        ends = list(accumulate(lengths)) if isinstance(lengths, list) else lengths.cumsum()
        count = max(1, bisect_right(ends, size))
        return PropertyBlocks(self.data, self.starts[begin : begin + count], lengths[:count])

    def raws(self) -> list[bytes]:
        """Return the properties of each message."""
        data = self.data
        places = zip(self.starts, self.lengths, strict=True)
        return [bytes(data[start : start + length]) for start, length in places]


def record_properties(
    data: memoryview, places: Numbers, sizes: Numbers, topic_length: int, base: int = 0
) -> PropertyBlocks:
    """Return the properties of sound records of one topic.

    Args:
        data: buffer with the records.
        places: start of each record, minus ``base`` in ``data``; a numpy array if there are many.
        sizes: length of each record.
        topic_length: bytes of their topic, with the length before it (``topic_block``).
        base: number to subtract from each place.
    """
    behind = BODY_POSITION + topic_length + _LENGTH_OF_LENGTH
    if len(places) >= MANY:
        return _many(data, places, sizes, behind, base)
    starts, lengths = [], []
    for place, size in zip(places, sizes, strict=True):
        at = int(place) - base
        flag, body_length = _FLAG_AND_LENGTH.unpack_from(data, at + SYS_FLAG_POSITION)
        begin = at + behind
        if flag & _IPV6:
            longer = RECORD_HEADS[flag >> 4 & 3].size - BODY_POSITION
            (body_length,) = _LENGTH.unpack_from(data, at + BODY_LENGTH_POSITION + longer)
            begin += longer
        starts.append(begin + body_length)
        lengths.append(at + int(size) - begin - body_length)
    return PropertyBlocks(data, starts, lengths)


def _many(data: memoryview, places: Numbers, sizes: Numbers, behind: int, base: int) -> PropertyBlocks:
    import numpy as np

    at = np.asarray(places, np.int64) - base
    words = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))
    flags = words[at + SYS_FLAG_POSITION]
    if (flags & _IPV6).any():
        longer = ((flags >> 4 & 1) + (flags >> 5 & 1)).astype(np.int64) * _LONGER
        heads = at + longer
    else:
        heads = at
    starts = heads + words[heads + BODY_LENGTH_POSITION] + behind
    return PropertyBlocks(data, starts, at + np.asarray(sizes, np.int64) - starts)


# Up to so many different lengths, all values of one length are read at a time.
_FEW_LENGTHS: Final = 16


def property_values(blocks: PropertyBlocks, names: Sequence[bytes]) -> list[list[bytes]]:
    """Return, for each of ``names``, the values of all messages; empty for a message without one."""
    raws = blocks.raws()
    return [[get_property(raw, name) or b"" for raw in raws] for name in names]


def values_at(data: memoryview, slices: Slices) -> list[bytes]:
    """Return the values of many messages, found by ``property_slices``."""
    import numpy as np

    from rocketbroker.codec.message.columns import gather

    starts, lengths = slices
    distinct = np.unique(lengths[lengths > 0]).tolist()
    if len(distinct) > _FEW_LENGTHS:
        places = map(slice, starts.tolist(), (starts + lengths).tolist())
        return list(map(bytes, map(data.__getitem__, places)))
    values = np.full(len(starts), b"", object)
    for length in distinct:
        rows = np.flatnonzero(lengths == length)
        values[rows] = gather(np.frombuffer(data, np.uint8), f"V{length}", starts[rows]).astype(object)
    found: list[bytes] = values.tolist()
    return found
