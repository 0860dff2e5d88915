"""Finds where the records of a split begin.

Most of a window is walked by many chains at once (``codec/storefile/record_chains.py``). Where those find anything
irregular it is walked record by record, which also says what is damaged.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.files.log_window import LogWindow
from rocketbroker.analytics.log.split import Split
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.broken_record import what_is_wrong
from rocketbroker.codec.storefile.record_chains import chain_records
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect, is_complete
from rocketbroker.common.errors import StoreError

# Bytes of a window here: much is done for each, whatever its size.
_WINDOW_SIZE: Final = 4 << 20


def window_of(split: Split) -> LogWindow:
    """A window to walk ``split`` in."""
    return LogWindow(split.file, _WINDOW_SIZE if split.file.root.is_local else None, split.high)


def walk_split(split: Split, window: LogWindow, report: DecodeReport) -> Iterator[Records]:
    """The records that begin in ``split``, a window's worth at a time; what is no record goes into ``report``.

    Records lie in the window's memory: use them before the next are taken.
    """
    walk = _Walk(split, window, report)
    while not walk.finished:
        walk.load()
        for records in (walk.at_once(), walk.one_by_one()):
            if records is not None and len(records):
                yield records


def damage_at_begin(split: Split, window: LogWindow) -> SkippedRange | None:
    """What stands at the beginning of ``split`` where a record should begin; ``None`` if one does, or nothing.

    :func:`walk_split` leaves it to the split before to tell of it, which may have been read before it was there.
    """
    if inspect(window, split.low)[0] is not Found.BROKEN:
        return None
    after = find_record(window, split.low + 1, split.high)
    length = (after if after >= 0 else split.high) - split.low
    why = what_is_wrong(window, split.low)[0]
    return SkippedRange(split.file.root.broker, split.file.path, split.low, length, why.value)


class _Walk:
    """``position`` is that of the next record in the file; ``finished`` once nothing of the split is left."""

    def __init__(self, split: Split, window: LogWindow, report: DecodeReport) -> None:
        self.split = split
        self.window = window
        self.report = report
        self.position = 0 if split.low == 0 else find_record(window, split.low, split.high)
        self.finished = self.position < 0

    def load(self) -> None:
        """Have the window hold what follows, at least one record."""
        window = self.window
        if not window.start == self.position < window.end:
            window.load(self.position, 0)
        size = inspect(window, self.position)[1]
        if window.end < self.position + size:
            window.load(self.position, size)
        if window.end < self.position + size:
            raise StoreError(f"the commit-log file {self.split.file.path} became shorter while it was read")

    def at_once(self) -> Records | None:
        """The records that chains find."""
        chains = chain_records(self.window, self.split.high)
        if chains is None:
            return None
        self.position = chains[1]
        return chains[0]

    def one_by_one(self) -> Records | None:
        """The records behind those, unless chains go on in the next window; after damage it ends as well."""
        window, starts = self.window, list[int]()
        if window.start < self.position and window.end < min(self.split.high, self.split.file.data_end):
            found = inspect(window, self.position)[0]
            if found is Found.RECORD:
                return None
        while not self.finished:
            found, size = inspect(window, self.position)
            if found is not Found.RECORD:
                self._no_record(found, starts)
                break
            if self.position >= self.split.high:
                self.finished = True
            elif self.position + size > window.end:
                break
            else:
                starts.append(self.position)
                self.position += size
        base = self.split.file.base + window.start
        return Records(base, window.array(), np.array(starts, np.int64) - window.start)

    def _no_record(self, found: Found, starts: list[int]) -> None:
        """Go on behind what is no record, or finish."""
        file, after = self.split.file, -1
        if found is Found.BROKEN:
            after = find_record(self.window, self.position + 1, file.data_end)
        if after >= 0:
            self.report.add_broken(self._skipped(after))
            self.position = after
            return
        self.finished = True
        if found is not Found.BLANK:
            self._end_of_log(starts) if self.split.last else self._end_of_full_file(found)

    def _end_of_full_file(self, found: Found) -> None:
        if found is Found.BROKEN or self.position < self.split.file.size:
            self.report.add_broken(self._skipped(self.split.file.size))

    def _end_of_log(self, starts: list[int]) -> None:
        """Take back the records at the end of which something is missing."""
        file = self.split.file
        while starts and not is_complete(self.window.at(starts[-1], self.position - starts[-1])):
            self.position = starts.pop()
        if self.position < file.data_end:
            self.report.add_unfinished(self._skipped(file.data_end, AuditRule.LOG_TORN_TAIL))

    def _skipped(self, end: int, reason: AuditRule | None = None) -> SkippedRange:
        file = self.split.file
        why = reason or what_is_wrong(self.window, self.position)[0]
        return SkippedRange(file.root.broker, file.path, self.position, end - self.position, why.value)
