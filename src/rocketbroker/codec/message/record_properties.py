"""The properties of records that lie in memory, without a look at what else is in them."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from rocketbroker.codec.message.message_encoder import (
    BODY_LENGTH_POSITION,
    BODY_POSITION,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
)

# sysFlag, bodyLength: both hosts IPv4.
_FLAG_AND_LENGTH: Final = Struct(">i44xi")
_LENGTH: Final = Struct(">i")
_LENGTH_OF_LENGTH: Final = 2


def record_properties(data: memoryview, places: Iterable[tuple[int, int]], topic_length: int) -> list[bytes]:
    """The properties of each record.

    Args:
        data: holds the records, which are sound.
        places: where each begins in ``data``, and its size.
        topic_length: bytes that their topic takes, with the length before it (``topic_block``).
    """
    unpack = _FLAG_AND_LENGTH.unpack_from
    behind = BODY_POSITION + topic_length + _LENGTH_OF_LENGTH
    found = []
    for at, size in places:
        flag, body_length = unpack(data, at + SYS_FLAG_POSITION)
        begin = at + behind
        if flag & 0x30:
            longer = RECORD_HEADS[flag >> 4 & 3].size - BODY_POSITION
            (body_length,) = _LENGTH.unpack_from(data, at + BODY_LENGTH_POSITION + longer)
            begin += longer
        found.append(bytes(data[begin + body_length : at + size]))
    return found
