"""Entries of slot files, which hold the slots of timer messages. RocketMQ has a timer log and a wheel instead.

    entry := int64 slotMs, int64 queueOffset, int32 magic                                         20 bytes

``slotMs`` is the time of the message's slot, a multiple of the timer's precision; ``queueOffset`` is its offset in
queue 0 of rmq_sys_wheel_timer. The entries of a file are in the order of their queue offsets.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

TIMER_SLOT_ENTRY: Final = Struct(">qqi")
#: Magic of an ordinary message, and of one that cancels another (TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE).
MAGIC_DEFAULT: Final = 1
MAGIC_DELETE: Final = 4

_FIELDS: Final = 3


class SlotEntries(NamedTuple):
    """Entries of a file: their number, and the queue offsets of the first and the last, -1 without one."""

    number: int
    first: int
    last: int


def encode_entries(fields: array[int]) -> bytes:
    """Encode entries, given as three numbers each: slot time, queue offset and magic."""
    pack = TIMER_SLOT_ENTRY.pack
    steps = (iter(fields),) * _FIELDS
    return b"".join([pack(*entry) for entry in zip(*steps, strict=True)])
