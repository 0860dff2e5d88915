"""Looks through the entries of a slot file by numpy: it may hold millions, and the event loop runs beside it.

Part of ``slot_files.py`` and ``timer_wheel.py``, and apart from them since importing numpy takes longer than a broker's
start may.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from rocketbroker.broker.timer.timer_progress import Delivered
from rocketbroker.codec.storefile.dtypes import TIMER_SLOT_ENTRY
from rocketbroker.codec.storefile.timer_slot_layout import MAGIC_DEFAULT, MAGIC_DELETE

# Queue offsets of messages, and of those that cancel others.
Offsets = tuple["array[int]", "array[int]"]


def count_sound(data: bytes, first_slot_ms: int, end_slot_ms: int) -> tuple[int, int, int]:
    """How many entries at the beginning of a file can be such, and the queue offsets of the first and the last.

    Args:
        data: the file.
        first_slot_ms: the first slot that belongs into it.
        end_slot_ms: the first one that does not.
    """
    entries = np.frombuffer(data, TIMER_SLOT_ENTRY, len(data) // TIMER_SLOT_ENTRY.itemsize)
    slots, offsets = entries["slot_ms"], entries["queue_offset"].astype(np.int64)
    sound = (slots >= first_slot_ms) & (slots < end_slot_ms) & np.isin(entries["magic"], (MAGIC_DEFAULT, MAGIC_DELETE))
    sound &= np.diff(offsets, prepend=-1) > 0
    count = len(entries) if sound.all() else int(np.argmin(sound))
    return (count, int(offsets[0]), int(offsets[count - 1])) if count else (0, -1, -1)


def parted_by_slot(data: bytes, delivered: Delivered) -> dict[int, Offsets]:
    """The queue offsets of each slot, ascending, without those of messages that are delivered."""
    entries = np.frombuffer(data, TIMER_SLOT_ENTRY)
    slots, offsets = entries["slot_ms"].astype(np.int64), entries["queue_offset"].astype(np.int64)
    deletes = entries["magic"] == MAGIC_DELETE
    wanted = np.ones(len(entries), np.bool_)
    for before_ms, before_offset in delivered:
        wanted &= (slots >= before_ms) | (offsets >= before_offset)
    members = np.flatnonzero(wanted | deletes)
    order = members[np.argsort(slots[members], kind="stable")]
    cuts = np.flatnonzero(np.diff(slots[order])) + 1
    return {
        int(slots[group[0]]): (_array(offsets[group[~deletes[group]]]), _array(offsets[group[deletes[group]]]))
        for group in np.split(order, cuts)
        if len(group)
    }


def _array(offsets: npt.NDArray[np.int64]) -> array[int]:
    found = array("q")
    found.frombytes(offsets.tobytes())
    return found
