"""Positions of the properties of records, without decoding the rest; with numpy for many records."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, Final, Self, TypeAlias

from rocketbroker.codec.message.message_encoder import (
    BODY_LENGTH_POSITION,
    BODY_POSITION,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
)

#: Number of messages from which numpy is quicker; importing it takes longer than a broker may take to start.
MANY: Final = 24

#: Whole numbers: a list or a numpy array.
Numbers: TypeAlias = Any

# sysFlag, bodyLength: both hosts IPv4.
_FLAG_AND_LENGTH: Final = Struct(">i44xi")
_LENGTH: Final = Struct(">i")
_LENGTH_OF_LENGTH: Final = 2
_IPV6: Final = 0x30
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

    def part(self, begin: int, size: int) -> "PropertyBlocks":
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
