"""Check of the content of a record with sound lengths: body by CRC, topic and properties by their sectors.

No checksum covers topic and properties. A sector of them that never reached the disk is all zeros.
"""

from typing import Final

from rocketbroker.codec.message.message_encoder import (
    MESSAGE_MAGIC_CODE_V2,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    SYS_FLAG_POSITION,
    body_crc,
)
from rocketbroker.codec.storefile.audit_rules import AuditRule

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
