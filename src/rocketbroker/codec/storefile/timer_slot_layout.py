"""Entries of slot files, which say when timer messages have their turn. RocketMQ has a timer log and a wheel for it.

    entry := int64 slotMs, int64 queueOffset, int32 magic                                         20 bytes

``slotMs`` is the time at which the message has its turn, a multiple of the timer's precision, ``queueOffset`` its place
in queue 0 of rmq_sys_wheel_timer. The entries of a file stand in the order of their queue offsets.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

from rocketbroker.codec.message.buffers import ReadableBuffer

TIMER_SLOT_ENTRY: Final = Struct(">qqi")
#: Of an ordinary message, and of one that cancels another (TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE).
MAGIC_DEFAULT: Final = 1
MAGIC_DELETE: Final = 4

_FIELDS: Final = 3


def encode_entries(fields: array[int]) -> bytes:
    """Entries, given as slot time, queue offset and magic of each in turn."""
    pack = TIMER_SLOT_ENTRY.pack
    steps = (iter(fields),) * _FIELDS
    return b"".join([pack(*entry) for entry in zip(*steps, strict=True)])


def count_entries(data: ReadableBuffer, first_slot_ms: int, end_slot_ms: int) -> tuple[int, int, int]:
    """How many entries at the beginning of a file can be such, and the queue offsets of the first and the last.

    Args:
        data: the file.
        first_slot_ms: the first slot that belongs into it.
        end_slot_ms: the first one that does not.
    """
    count, first, last = 0, -1, -1
    whole = len(data) // TIMER_SLOT_ENTRY.size * TIMER_SLOT_ENTRY.size
    for slot_ms, queue_offset, magic in TIMER_SLOT_ENTRY.iter_unpack(data[:whole]):
        if not first_slot_ms <= slot_ms < end_slot_ms or queue_offset <= last:
            break
        if magic not in {MAGIC_DEFAULT, MAGIC_DELETE}:
            break
        first = queue_offset if count == 0 else first
        count, last = count + 1, queue_offset
    return count, first, last
