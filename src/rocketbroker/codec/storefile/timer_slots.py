"""Entries of slot files, which hold the slots of timer messages. RocketMQ has a timer log and a wheel instead.

    entry := int64 slotMs, int64 queueOffset, int32 magic                                         20 bytes

``slotMs`` is the time of the message's slot, a multiple of the timer's precision; ``queueOffset`` is its offset in
queue 0 of rmq_sys_wheel_timer. The entries of a file are in the order of their queue offsets.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.topic_validator import SYSTEM_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable

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


# Slots of timer messages, and ``config/timerProgress.json``, the record of delivered messages.
#
# The slot of a message depends on the message alone, so that reading the timer's queue again always gives the same
# slots.

#: Timer messages wait in queue 0 of this topic (TimerMessageStore.TIMER_TOPIC).
TIMER_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "wheel_timer"

#: Pairs (slot time in ms, queue offset): a message with an earlier slot and a lower offset than one of them is
#: delivered.
Delivered = tuple[tuple[int, int], ...]


class TimerProgressFile(RemotingSerializable):
    """Content of ``config/timerProgress.json``.

    Attributes:
        queue_offset: queue offset before which all messages are in the slot files, or delivered.
        delivered: see ``Delivered``.
        precision_ms: width of a slot when the messages were stored.
        roll_window_ms: messages further ahead are stored again after this time.
        waiting: number of undelivered messages by topic.
        counted_to: queue offset before which messages count in ``waiting``.
    """

    queue_offset: Long = 0
    slot_entries: dict[Long, Int] = {}
    delivered: list[tuple[Long, Long]] = []
    precision_ms: Int = 0
    roll_window_ms: Long = 0
    waiting: dict[str, Long] = {}
    counted_to: Long = 0


def is_delivered(delivered: Delivered, slot_ms: int, queue_offset: int) -> bool:
    """Return true if a message with this slot and queue offset is delivered."""
    return any(slot_ms < before_ms and queue_offset < before_offset for before_ms, before_offset in delivered)


def with_delivered(delivered: Delivered, before_ms: int, before_offset: int) -> Delivered:
    """Return ``delivered`` with everything before a slot time and below ``before_offset``, without redundant pairs."""
    if any(ms >= before_ms and offset >= before_offset for ms, offset in delivered):
        return delivered
    kept = [(ms, offset) for ms, offset in delivered if ms > before_ms or offset > before_offset]
    return (*kept, (before_ms, before_offset))


def slot_of(out_ms: int, store_timestamp: int, precision_ms: int, roll_window_ms: int) -> int:
    """Return the slot of a message: its own, or an earlier one if that is too far ahead.

    Args:
        out_ms: its TIMER_OUT_MS.
        store_timestamp: time in ms at which it was stored in the timer's queue.
        precision_ms: width of a slot.
        roll_window_ms: greatest distance ahead.
    """
    enqueued = store_timestamp // precision_ms * precision_ms
    ahead = out_ms - enqueued
    if ahead < roll_window_ms:
        return out_ms
    # The last stage is not a short one (TimerMessageStore.doEnqueue).
    way = roll_window_ms // 2 if ahead - roll_window_ms < roll_window_ms // 3 else roll_window_ms
    return enqueued + way // precision_ms * precision_ms
