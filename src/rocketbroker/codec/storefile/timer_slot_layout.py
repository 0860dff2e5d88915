"""Entries of slot files, which say when timer messages have their turn. RocketMQ has a timer log and a wheel for it.

    entry := int64 slotMs, int64 queueOffset, int32 magic                                         20 bytes

``slotMs`` is the time at which the message has its turn, a multiple of the timer's precision, ``queueOffset`` its place
in queue 0 of rmq_sys_wheel_timer. The entries of a file stand in the order of their queue offsets.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

TIMER_SLOT_ENTRY: Final = Struct(">qqi")
#: Of an ordinary message, and of one that cancels another (TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE).
MAGIC_DEFAULT: Final = 1
MAGIC_DELETE: Final = 4

_FIELDS: Final = 3


def encode_entries(fields: array[int]) -> bytes:
    """Encode entries, given as slot time, queue offset and magic of each in turn."""
    pack = TIMER_SLOT_ENTRY.pack
    steps = (iter(fields),) * _FIELDS
    return b"".join([pack(*entry) for entry in zip(*steps, strict=True)])
