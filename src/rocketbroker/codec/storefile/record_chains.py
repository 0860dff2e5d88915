"""Search for the records of a CommitLog stretch, many at a time.

A record is searched every ``_STEP`` bytes. From all of these anchors numpy follows totalSize, one step at a time, until
each chain meets the next anchor. The result ends where a chain misses, or the lengths of a record do not add up: the
caller continues there record by record, and finds the damage.
"""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, gather, rows_at
from rocketbroker.codec.message.message_encoder import RECORD_HEADS
from rocketbroker.codec.storefile.log_window import LogWindow
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import MAGIC_PREFIX, MIN_RECORD_SIZE, Found, inspect

_STEP: Final = 8 << 10
# Bytes searched for a record; if none begins in them, the chain before continues to the next anchor.
_SEARCHED: Final = 2 << 10
_NEAR: Final = 1 << 10  # bytes searched first, in all stretches at once
# Records that all chains advance before finished chains are removed.
_STRIDE: Final = 16
_FEWEST: Final = 3
_MAGIC_AT: Final = 4
_POSITION_AT: Final = 28
_NONE: Final[Positions] = np.empty(0, np.int64)


def chain_records(window: LogWindow, high: int) -> tuple[Records, int] | None:
    """Return the records from the window's start to a file position below ``high``, and that position.

    A sound record begins there, or something irregular lies between it and the next anchor. The result is ``None`` if
    there are too few records for chains, or the first is irregular.
    """
    data, base = window.array(), window.file.base + window.start
    anchors = _anchors(window, data, base, min(high, window.end - RECORD_HEADS[3].size) - window.start)
    if len(anchors) < _FEWEST:
        return None
    starts, regular = _follow(data, anchors)
    records = Records(base, data, starts if regular == len(anchors) - 1 else starts[starts < anchors[regular]])
    sound = records.sound_each()
    if not sound.all():
        regular = int(np.searchsorted(anchors, records.starts[np.argmin(sound)], side="right")) - 1
        records = Records(base, data, starts[starts < anchors[regular]])
    return (records, int(anchors[regular]) + window.start) if regular else None


def _anchors(window: LogWindow, data: NDArray[np.uint8], base: int, high: int) -> Positions:
    """Return positions in ``data`` that look like records, one every ``_STEP`` bytes or so.

    The first is at 0; the result is empty if no record begins there.
    """
    if high <= 0 or inspect(window, window.start)[0] is not Found.RECORD:
        return _NONE
    lows = np.arange(_STEP, min(high, len(data) - _SEARCHED - RECORD_HEADS[3].size), _STEP)
    if not len(lows):
        return _NONE
    # The first byte of a magic code is not ASCII and rare in other data: mostly the first one found is a magic code.
    found = lows + (rows_at(data, lows + _MAGIC_AT, _NEAR) == MAGIC_PREFIX[0]).argmax(axis=1)
    left = np.flatnonzero(~_look_alike(data, base, found))
    found[left] = _search(data, base, lows[left])
    return np.concatenate(([0], found[(found >= 0) & (found < high)]))


def _search(data: NDArray[np.uint8], base: int, lows: Positions) -> Positions:
    """Return the first position from each of ``lows`` on that looks like a record, -1 without one."""
    hits = np.flatnonzero(rows_at(data, lows + _MAGIC_AT, _SEARCHED) == MAGIC_PREFIX[0])
    rows = hits // _SEARCHED
    places = lows[rows] + hits % _SEARCHED
    alike = _look_alike(data, base, places)
    found = np.full(len(lows), -1)
    found[rows[alike][::-1]] = places[alike][::-1]  # of several, the last one stored counts
    return found


def _look_alike(data: NDArray[np.uint8], base: int, places: Positions) -> NDArray[np.bool_]:
    """Return a mask of the places with the magic code of a message and their own offset."""
    alike = gather(data, ">u4", places + _MAGIC_AT) >> 8 == int.from_bytes(MAGIC_PREFIX, "big")
    found: NDArray[np.bool_] = alike & (gather(data, ">i8", places + _POSITION_AT) == places + base)
    return found


def _follow(data: NDArray[np.uint8], anchors: Positions) -> tuple[Positions, int]:
    """Return the positions on the chains between anchors, and the number of the first chain that misses."""
    sizes = np.ndarray((len(data) - 3,), ">u4", buffer=data, strides=(1,))
    cursors, ends, numbers = anchors[:-1], anchors[1:], np.arange(len(anchors) - 1)
    found, regular = [], len(numbers)
    while len(cursors):
        block = np.empty((_STRIDE + 1, len(cursors)), np.int64)
        block[0] = cursors
        for row, after in pairwise(block):
            np.add(row, sizes[row], out=after)
            np.minimum(after, len(sizes) - 1, out=after)
        # Chain by chain: the positions then ascend but for a few changes of stride, which makes the sort quick.
        found.append(block[:-1].T[(block[:-1] < ends).T])
        cursors = block[-1]
        through, stuck = cursors >= ends, cursors - block[0] < _STRIDE * MIN_RECORD_SIZE
        missed = np.where(through, ~(block == ends).any(axis=0), stuck)
        if missed.any():
            regular = min(regular, int(numbers[missed][0]))
        going = ~(through | stuck)
        cursors, ends, numbers = cursors[going], ends[going], numbers[going]
    return np.sort(np.concatenate(found), kind="stable"), regular
