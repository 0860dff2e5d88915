"""Finds where all records of a stretch of a commit log begin, many at a time.

Every ``_STEP`` bytes a record is searched for, and from all of these numpy follows totalSize a step at a time, until
each chain meets the beginning of the next. If one does not, or one record's lengths do not add up, nothing is found:
then who asks goes record by record, which also says what is damaged.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, gather
from rocketbroker.codec.message.message_encoder import RECORD_HEADS
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE, Found, LogBytes, find_record, inspect

_STEP = 64 << 10
_NONE: Positions = np.empty(0, np.int64)


class LogWindow(LogBytes, Protocol):
    """Bytes ``start`` to ``end`` of a commit-log file, held in memory."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

    def array(self) -> NDArray[np.uint8]:
        """The bytes."""


def chain_starts(window: LogWindow, high: int) -> Positions:
    """Positions in the file of the records from the window's start on, below ``high``; none if anything is irregular.

    Stops short of the window's end, so that its last record may reach beyond it. The first begins at the start.
    """
    anchors = _anchors(window, min(high, window.end - RECORD_HEADS[3].size))
    if len(anchors) < 3:
        return _NONE
    data, ends = window.array(), np.array(anchors[1:], np.int64) - window.start
    cursors, found = np.array(anchors[:-1], np.int64) - window.start, []
    while len(cursors):
        found.append(cursors)
        cursors = cursors + np.maximum(gather(data, ">i4", cursors), MIN_RECORD_SIZE)
        if (cursors > ends).any():
            return _NONE
        going = cursors < ends
        cursors, ends = cursors[going], ends[going]
    starts = np.sort(np.concatenate(found))
    if not Records(window.file.base + window.start, data, starts).sound():
        return _NONE
    return np.append(starts + window.start, anchors[-1])


def _anchors(window: LogWindow, high: int) -> list[int]:
    """Positions in the file of a record every ``_STEP`` bytes or so."""
    if inspect(window, window.start)[0] is not Found.RECORD:
        return []
    anchors = [window.start]
    while (low := anchors[-1] + _STEP) < high and (anchor := find_record(window, low, high)) >= 0:
        anchors.append(anchor)
    return anchors
