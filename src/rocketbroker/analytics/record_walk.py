"""Finds where the records of a split begin.

Most of a window is walked by many chains at once (``codec/storefile/record_chains.py``). Where those find anything
irregular it is walked record by record, which also says what is damaged.
"""

from collections.abc import Iterator

import numpy as np

from rocketbroker.analytics.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.split import Split
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.record_chains import chain_starts
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect, is_complete
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_window import FileWindow


def walk_split(split: Split, window: FileWindow, report: DecodeReport) -> Iterator[Records]:
    """The records that begin in ``split``, a window's worth at a time; what is no record goes into ``report``."""
    walk = _Walk(split, window, report)
    while not walk.finished:
        starts = walk.next_window()
        if len(starts):
            report.messages += len(starts)
            yield Records(split.file.base + window.start, window.array(), starts - window.start)


class _Walk:
    """``position`` is that of the next record in the file; ``finished`` once nothing of the split is left."""

    def __init__(self, split: Split, window: FileWindow, report: DecodeReport) -> None:
        self.split = split
        self.window = window
        self.report = report
        self.position = 0 if split.low == 0 else find_record(window, split.low, split.high)
        self.finished = self.position < 0

    def next_window(self) -> Positions:
        """Load the window at ``position`` and return where the records begin that are whole in it."""
        size = inspect(self.window, self.position)[1]
        self.window.load(self.position, size)
        if self.window.end < self.position + size:
            raise StoreError(f"the commit-log file {self.split.file.path} became shorter while it was read")
        at_once = chain_starts(self.window, self.split.high)
        if len(at_once):
            self.position = int(at_once[-1])
        return np.concatenate((at_once[:-1], self._one_by_one()))

    def _one_by_one(self) -> Positions:
        starts: list[int] = []
        while not self.finished:
            found, size = inspect(self.window, self.position)
            if found is not Found.RECORD:
                self._no_record(found, starts)
            elif self.position >= self.split.high:
                self.finished = True
            elif self.position + size > self.window.end:
                break
            else:
                starts.append(self.position)
                self.position += size
        return np.array(starts, np.int64)

    def _no_record(self, found: Found, starts: list[int]) -> None:
        """Go on behind what is no record, or finish."""
        file, after = self.split.file, -1
        if found is Found.BROKEN:
            after = find_record(self.window, self.position + 1, file.data_end)
        if after >= 0:
            self.report.add_broken(SkippedRange(file.path, self.position, after - self.position))
            self.position = after
            return
        self.finished = True
        if found is not Found.BLANK:
            self._end_of_log(starts) if self.split.last else self._end_of_full_file(found)

    def _end_of_full_file(self, found: Found) -> None:
        file = self.split.file
        if found is Found.BROKEN or self.position < file.size:
            self.report.add_broken(SkippedRange(file.path, self.position, file.size - self.position))

    def _end_of_log(self, starts: list[int]) -> None:
        """Take back the records at the end of which something is missing."""
        file = self.split.file
        while starts and not is_complete(self.window.at(starts[-1], self.position - starts[-1])):
            self.position = starts.pop()
        if self.position < file.data_end:
            self.report.add_unfinished(SkippedRange(file.path, self.position, file.data_end - self.position))
