"""Whether a record stands at a position of a commit-log file. Answers to ``CommitLog.checkMessageAndReturnSize``."""

from enum import Enum, auto
from struct import Struct
from typing import Final, Protocol

from rocketbroker.codec.message.message_encoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_HEAD,
    RECORD_HEADS,
    body_crc,
    record_size,
)

#: The bytes both magic codes begin with.
MAGIC_PREFIX: Final = MESSAGE_MAGIC_CODE_V1.to_bytes(4, "big")[:3]
#: The smallest record: both hosts IPv4; body, topic and properties empty.
MIN_RECORD_SIZE: Final = record_size(0, 0, 0)
_START: Final = Struct(">iIIiiqqi")  # totalSize … sysFlag
_LONGEST_HEAD: Final = RECORD_HEADS[3].size
_INT: Final = Struct(">i")
# Most searches end at once; those that do not read more and more at a time.
_FIRST_BLOCK: Final = 4 << 10
_SEARCH_BLOCK: Final = 1 << 20


class LogFile(Protocol):
    """A commit-log file: ``base`` is the physical offset of its first byte, ``size`` its length, ``data_end`` the
    position behind the last byte that may hold data. All in bytes."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def data_end(self) -> int: ...


class LogBytes(Protocol):
    """Gives bytes of one commit-log file."""

    @property
    def file(self) -> LogFile: ...

    def at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``, fewer at the file's end."""


class Found(Enum):
    """What stands at a position."""

    RECORD = auto()
    BLANK = auto()  # closes the file
    END = auto()  # of the file or of what is written in it
    BROKEN = auto()


def inspect(window: LogBytes, position: int) -> tuple[Found, int]:
    """What stands at ``position``, and the record's size in bytes if it is one.

    A record has a known magic code, its own offset as physicalOffset, and lengths that add up to its totalSize.
    """
    file = window.file
    if position >= file.data_end:
        return Found.END, 0
    head = window.at(position, _LONGEST_HEAD)
    if len(head) >= BLANK_LENGTH and int.from_bytes(head[4:8], "big") == BLANK_MAGIC_CODE:
        closes = _INT.unpack_from(head)[0] == file.size - position
        return (Found.BLANK if closes else Found.BROKEN), 0
    if len(head) < RECORD_HEAD.size:
        return Found.BROKEN, 0
    size, magic, _, _, _, _, physical_offset, sys_flag = _START.unpack_from(head)
    if magic not in (MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2) or physical_offset != file.base + position:
        return Found.BROKEN, 0
    if not MIN_RECORD_SIZE <= size <= file.size - position:
        return Found.BROKEN, 0
    sound = _length(window, position, head, sys_flag, size) == size
    return (Found.RECORD, size) if sound else (Found.BROKEN, 0)


def _length(window: LogBytes, position: int, head: bytes, sys_flag: int, size: int) -> int:
    """What the lengths inside a record add up to; -1 if they make no sense. Reads no body, nothing behind ``size``."""
    head_size = RECORD_HEADS[sys_flag >> 4 & 3].size
    if len(head) < head_size or not 0 <= (body_length := _INT.unpack_from(head, head_size - 4)[0]) <= size - head_size:
        return -1
    width = 2 if head[7] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    properties_at = position + head_size + body_length + width
    topic_length = int.from_bytes(window.at(properties_at - width, width), "big", signed=width == 2)
    properties_at += topic_length
    if topic_length < 0 or properties_at > position + size:
        return -1
    properties_length = int.from_bytes(window.at(properties_at, 2), "big", signed=True)
    return -1 if properties_length < 0 else properties_at + 2 + properties_length - position


def find_record(window: LogBytes, low: int, high: int) -> int:
    """The first position from ``low`` to below ``high`` at which a record stands, or -1."""
    start, size = low, _FIRST_BLOCK
    while start < high:
        stop = min(start + size, high)
        # Magic follows totalSize: that of a record starting at stop - 1 ends 7 bytes later.
        block, at = window.at(start, stop - start + 6), 3
        while (at := block.find(MAGIC_PREFIX, at + 1)) >= 0:
            if inspect(window, start + at - 4)[0] is Found.RECORD:
                return start + at - 4
        start, size = stop, min(size * 4, _SEARCH_BLOCK)
    return -1


def is_complete(record: bytes) -> bool:
    """Whether all of a record with sound lengths was written: its body has its CRC, topic and properties no zero end.

    For the last record of a log, where a writer may be at work; elsewhere a wrong CRC is the reader's to judge.
    """
    head_size = RECORD_HEADS[_INT.unpack_from(record, 36)[0] >> 4 & 3].size
    crc, body_length = int.from_bytes(record[8:12], "big"), _INT.unpack_from(record, head_size - 4)[0]
    body_end = head_size + body_length
    if body_crc(record[head_size:body_end]) != crc:
        return False
    width = 2 if record[7] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    topic_end = body_end + width + int.from_bytes(record[body_end : body_end + width], "big")
    properties = record[topic_end + 2 :]
    return b"\0" not in record[body_end + width : topic_end] and not properties.endswith(b"\0")
