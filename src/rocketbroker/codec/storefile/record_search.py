"""Layout of a CommitLog file, and the search for a record at a position (org.apache.rocketmq.store.CommitLog).

    file   := record* (BLANK | zeros)
    record := codec/message/message_decoder.py
    BLANK  := int32 bytes left in the file, int32 magic, the rest undefined

A record never spans files: one that does not fit goes to the next file, after a BLANK in this one. Unwritten space is
zeros, so a totalSize of 0 is the end of what was written.
"""

from enum import Enum, auto
from struct import Struct
from typing import Final

from rocketbroker.codec.message.message_decoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    OFFSETS,
    PROPERTIES_LENGTH,
    QUEUE_OFFSET_POSITION,
    RECORD_HEAD,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
    body_crc,
    record_size,
)
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.store_file import LogWindow

#: Bytes that stay free after the last record, so that a BLANK always fits.
END_FILE_MIN_BLANK_LENGTH: Final = BLANK_LENGTH


def fits(record_size: int, free: int) -> bool:
    """Return true if a record of ``record_size`` bytes fits into a file with ``free`` bytes left."""
    return record_size + END_FILE_MIN_BLANK_LENGTH <= free


# Check of the content of a record with sound lengths: body by CRC, topic and properties by their sectors.
#
# No checksum covers topic and properties. A sector of them that never reached the disk is all zeros.

#: Smallest number of bytes that a disk writes as a unit.
SECTOR: Final = 512
_MAGIC_END: Final = 8
_CRC_AT: Final = 8
# Zeros before them, in the length of the properties, may complete a sector.
_ZEROS: Final = bytes(SECTOR - 1)


def body_range(record: bytes | memoryview) -> tuple[int, int]:
    """Return begin and end of the body of a record with sound lengths."""
    begin = RECORD_HEADS[record[SYS_FLAG_POSITION + 3] >> 4 & 3].size
    return begin, begin + int.from_bytes(record[begin - 4 : begin], "big")


def wrong_body(record: bytes | memoryview) -> str:
    """Return both checksums if the body does not match that of the record, else an empty text."""
    begin, end = body_range(record)
    expected, found = int.from_bytes(record[_CRC_AT : _CRC_AT + 4], "big"), body_crc(record[begin:end])
    return "" if found == expected else f"bodyCRC is 0x{expected:08X}, but the body has 0x{found:08X}"


def damage_in(record: bytes | memoryview, position: int) -> tuple[AuditRule, str] | None:
    """Return the damage in a record with sound lengths at ``position`` of its file, if any."""
    if text := wrong_body(record):
        return AuditRule.RECORD_CRC, text
    if _lacks_sector(record, position):
        return AuditRule.RECORD_CRC, "a sector of its topic or properties holds only zeros"
    return None


def may_look_torn(properties: bytes) -> bool:
    """Return true if a record with these properties may look like one that did not reach the disk as a whole."""
    return b"\0" in properties and (properties.endswith(b"\0") or _ZEROS in properties)


def _lacks_sector(record: bytes | memoryview, position: int) -> bool:
    """Return true if a sector that begins after the body of a record at ``position`` is all zeros."""
    begin, end = body_range(record)[1], len(record)
    first = begin + SECTOR - (position + begin) % SECTOR
    # A record without properties ends with their length, two zeros.
    last = first if first >= end - 2 and not _has_properties(record, begin) else end
    return any(not bytes(record[at : min(at + SECTOR, end)]).strip(b"\0") for at in range(first, last, SECTOR))


def _has_properties(record: bytes | memoryview, topic_at: int) -> bool:
    width = 2 if record[_MAGIC_END - 1] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    topic_length = int.from_bytes(record[topic_at : topic_at + width], "big")
    return topic_at + width + topic_length + PROPERTIES_LENGTH.size < len(record)


#: Bytes with which both magic codes begin.
MAGIC_PREFIX: Final = MESSAGE_MAGIC_CODE_V1.to_bytes(4, "big")[:3]
#: The smallest record: both hosts IPv4; body, topic and properties empty.
MIN_RECORD_SIZE: Final = record_size(0, 0, 0)
_START: Final = Struct(">iIIiiqqi")  # totalSize … sysFlag
_LONGEST_HEAD: Final = RECORD_HEADS[3].size
_INT: Final = Struct(">i")
_STORE_TIMESTAMP: Final = 10  # of RECORD_HEADS' fields
# Most searches end at once; the others read ever more at a time.
_FIRST_BLOCK: Final = 4 << 10
_SEARCH_BLOCK: Final = 1 << 20


class Found(Enum):
    """Kinds of bytes that can begin at a position."""

    RECORD = auto()
    BLANK = auto()  # closes the file
    END = auto()  # of the file, or of its written part
    BROKEN = auto()


def inspect(window: LogWindow, position: int) -> tuple[Found, int]:
    """Return the kind of bytes that begin at ``position``, and the size in bytes of a record.

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


def _length(window: LogWindow, position: int, head: bytes, sys_flag: int, size: int) -> int:
    """Return the sum of the lengths in a record, -1 if they are invalid; read no body, and nothing after ``size``."""
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


def find_record(window: LogWindow, low: int, high: int) -> int:
    """Return the first position from ``low`` to below ``high`` at which a record begins, or -1."""
    start, size = low, _FIRST_BLOCK
    while start < high:
        stop = min(start + size, high)
        # The magic code follows totalSize: that of a record starting at stop - 1 ends 7 bytes later.
        block, at = window.at(start, stop - start + 6), 3
        while (at := block.find(MAGIC_PREFIX, at + 1)) >= 0:
            if inspect(window, start + at - 4)[0] is Found.RECORD:
                return start + at - 4
        start, size = stop, min(size * 4, _SEARCH_BLOCK)
    return -1


def is_complete(record: bytes) -> bool:
    """Return true if a record with sound lengths is complete: body with the right CRC, no zeros ending the properties.

    This is for the last record of a log, which may still be in progress. Elsewhere the reader judges a wrong CRC.
    """
    body_begin, body_end = body_range(record)
    if body_crc(record[body_begin:body_end]) != int.from_bytes(record[8:12], "big"):
        return False
    width = 2 if record[7] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    topic_end = body_end + width + int.from_bytes(record[body_end : body_end + width], "big")
    properties = record[topic_end + 2 :]
    return b"\0" not in record[body_end + width : topic_end] and not properties.endswith(b"\0")


def store_timestamp(head: bytes | memoryview) -> int:
    """Return the store time in ms of a record that begins with these bytes."""
    found: int = RECORD_HEADS[head[SYS_FLAG_POSITION + 3] >> 4 & 3].unpack_from(head)[_STORE_TIMESTAMP]
    return found


def what_is_wrong(window: LogWindow, position: int) -> tuple[AuditRule, str]:
    """Return the broken rule where neither a record nor a BLANK begins, and the values that break it."""
    head = window.at(position, RECORD_HEAD.size)
    if len(head) < BLANK_LENGTH or not any(head[:BLANK_LENGTH]):
        return AuditRule.LOG_HOLE, "nothing was written here"
    size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
    left = window.file.size - position
    if magic == BLANK_MAGIC_CODE:
        return AuditRule.BLANK_SIZE, f"a BLANK claims {size} bytes, but {left} are left in the file"
    if magic not in (MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2):
        return AuditRule.RECORD_MAGIC, f"magic code 0x{magic:08X}; 0xDAA320A7 (V1) or 0xDAA320AB (V2) is expected"
    if len(head) < RECORD_HEAD.size:
        return AuditRule.RECORD_LENGTH, f"totalSize is {size}, but {left} bytes are left in the file"
    offset = OFFSETS.unpack_from(head, QUEUE_OFFSET_POSITION)[1]
    if offset != (own := window.file.base + position):
        return AuditRule.RECORD_POSITION, f"physicalOffset is {offset}, but the record is at {own}"
    return AuditRule.RECORD_LENGTH, f"totalSize is {size}, which is not the sum of the lengths in the record"
