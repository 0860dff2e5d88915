"""Says what is wrong where neither a record nor a BLANK stands in a commit-log file."""

from rocketbroker.codec.message.message_encoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    OFFSETS,
    QUEUE_OFFSET_POSITION,
    RECORD_HEAD,
)
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.record_search import LogBytes


def what_is_wrong(window: LogBytes, position: int) -> tuple[AuditRule, str]:
    """Which rule is broken at a position where neither record nor BLANK stands, and how."""
    head = window.at(position, RECORD_HEAD.size)
    if len(head) < BLANK_LENGTH or not any(head[:BLANK_LENGTH]):
        return AuditRule.LOG_HOLE, "nothing was written here"
    size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
    left = window.file.size - position
    if magic == BLANK_MAGIC_CODE:
        return AuditRule.BLANK_SIZE, f"a BLANK claims {size} bytes, {left} are left in the file"
    if magic not in (MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2):
        return AuditRule.RECORD_MAGIC, f"magic code 0x{magic:08X}; 0xDAA320A7 (V1) or 0xDAA320AB (V2) is expected"
    if len(head) < RECORD_HEAD.size:
        return AuditRule.RECORD_LENGTH, f"totalSize is {size}, {left} bytes are left in the file"
    offset = OFFSETS.unpack_from(head, QUEUE_OFFSET_POSITION)[1]
    if offset != window.file.base + position:
        return (
            AuditRule.RECORD_POSITION,
            f"physicalOffset is {offset}, the record stands at {window.file.base + position}",
        )
    return AuditRule.RECORD_LENGTH, f"totalSize is {size}; the lengths in the record add up to something else"
