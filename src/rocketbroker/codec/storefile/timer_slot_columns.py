"""Scans of slot file entries with numpy: a file may hold millions, and the event loop runs beside the scan.

They are apart from ``timer_slots.py`` because importing numpy takes longer than a broker may take to start.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.storefile.dtypes import TIMER_SLOT_ENTRY
from rocketbroker.codec.storefile.timer_slots import MAGIC_DEFAULT, MAGIC_DELETE, Delivered, SlotEntries

# Fields of entries: slot time, queue offset and magic, or some of them.
Rows = npt.NDArray[np.int64]
# Queue offsets of messages, and of those that cancel others.
Offsets = tuple["array[int]", "array[int]"]


def count_sound(data: bytes, first_slot_ms: int, end_slot_ms: int) -> SlotEntries:
    """Count the sound entries at the start of a file.

    Args:
        data: the file.
        first_slot_ms: first slot of the file.
        end_slot_ms: first slot of the next file.
    """
    entries = np.frombuffer(data, TIMER_SLOT_ENTRY, len(data) // TIMER_SLOT_ENTRY.itemsize)
    slots, offsets = entries["slot_ms"], entries["queue_offset"].astype(np.int64)
    sound = (slots >= first_slot_ms) & (slots < end_slot_ms) & np.isin(entries["magic"], (MAGIC_DEFAULT, MAGIC_DELETE))
    sound &= np.diff(offsets, prepend=-1) > 0
    count = len(entries) if sound.all() else int(np.argmin(sound))
    return SlotEntries(count, int(offsets[0]), int(offsets[count - 1])) if count else SlotEntries(0, -1, -1)


def parted_by_slot(data: bytes, unwritten: array[int], delivered: Delivered) -> dict[int, Offsets]:
    """Return the queue offsets of each slot in ascending order, without those of delivered messages.

    Args:
        data: the entries of a file.
        unwritten: entries missing from the file, three numbers each: slot time, queue offset and magic.
        delivered: messages to leave out.
    """
    entries = np.frombuffer(data, TIMER_SLOT_ENTRY)
    written = np.stack([entries[name].astype(np.int64) for name in ("slot_ms", "queue_offset", "magic")], axis=1)
    rows = np.concatenate([written, _rows(unwritten)])
    rows = rows[_wanted(rows, delivered)]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return {
        int(group[0, 0]): (_array(group[group[:, 2] != MAGIC_DELETE, 1]), _array(group[group[:, 2] == MAGIC_DELETE, 1]))
        for group in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1)
        if len(group)
    }


def undelivered(fields: array[int], delivered: Delivered) -> array[int]:
    """Return the entries of undelivered messages, three numbers each: slot time, queue offset and magic."""
    rows = _rows(fields)
    return _array(rows[_wanted(rows, delivered)])


def _rows(fields: array[int]) -> Rows:
    return np.frombuffer(fields, np.int64).reshape(-1, 3)


def _wanted(rows: Rows, delivered: Delivered) -> npt.NDArray[np.bool_]:
    """Mask the entries that are undelivered or cancel: a cancelled message may be stored again, and come later."""
    wanted = np.ones(len(rows), np.bool_)
    for before_ms, before_offset in delivered:
        wanted &= (rows[:, 0] >= before_ms) | (rows[:, 1] >= before_offset)
    wanted |= rows[:, 2] == MAGIC_DELETE
    return wanted


def _array(values: Rows) -> array[int]:
    found = array("q")
    found.frombytes(values.tobytes())
    return found
