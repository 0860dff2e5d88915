"""Entries of queues (org.apache.rocketmq.store.ConsumeQueue, BatchConsumeQueue).

    entry       := int64 commitLogOffset, int32 size, int64 tagsCode                              20 bytes
    filler      := int64 0, int32 0x7FFFFFFF, int64 0
    batch entry := int64 commitLogOffset, int32 size, int64 tagsCode, int64 storeTime,
                   int64 msgBaseOffset, int16 batchSize, int32 compactedOffset, int32 reserved     46 bytes

Entry n of a queue is at byte n * 20 of the queue's files taken as one. Fillers take the places before a queue's first
entry if that is not entry 0. An entry of size 0 was never written.
"""

import re
from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, PROPERTY_INNER_NUM
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_properties import get_property

CQ_STORE_UNIT_SIZE: Final = 20
ENTRY: Final = Struct(">qiq")
#: Position of the size in an entry of either kind.
SIZE_POSITION: Final = 8
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER_ENTRY: Final = ENTRY.pack(0, FILLER_SIZE, 0)

BATCH_CQ_STORE_UNIT_SIZE: Final = 46
BATCH_ENTRY: Final = Struct(">qiqqqhii")
#: ``compactedOffset`` of an entry that was not compacted.
INVALID_COMPACTED_OFFSET: Final = -1
#: Suffix of a deleted topic's folder until its removal; no topic has such a name.
RETIRED: Final = re.compile(r"\.deleted-[0-9]+\Z")
#: Most messages that a batch entry can count.
MOST_IN_INNER_BATCH: Final = 0x7FFF


class QueueEntry(NamedTuple):
    """An entry of an ordinary queue."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """CommitLog offset after its record."""
        return self.physical_offset + self.size


def is_filler(commit_log_offset: int, size: int) -> bool:
    """Return true if an entry with these fields only fills the space before a queue's first entry."""
    return commit_log_offset == 0 and size == FILLER_SIZE


def is_written(size: int) -> bool:
    """Return true if an entry of this ``size`` was written."""
    return size > 0


def inner_count(sys_flag: int, properties: bytes) -> int:
    """Return the number of messages in a record: ``INNER_NUM`` of a batch, else 1.

    An ``INNER_NUM`` that is not a number from 1 to 32,767 counts as 1.
    """
    if not sys_flag & INNER_BATCH_FLAG:
        return 1
    text = get_property(properties, PROPERTY_INNER_NUM.encode()) or b""
    count = int(text) if text.isdigit() and len(text) <= len(str(MOST_IN_INNER_BATCH)) else 1
    return count if 1 <= count <= MOST_IN_INNER_BATCH else 1


def inner_batch(record: ReadableBuffer) -> tuple[int, int]:
    """Return the store time in ms of a record and the number of messages in it.

    Raises:
        CorruptRecordError: It is not a record.
    """
    message = decode_record(record, read_body=False)
    return message.store_timestamp, inner_count(message.sys_flag, message.properties_bytes)
