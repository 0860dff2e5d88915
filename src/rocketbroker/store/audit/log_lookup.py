"""Looks single records of the CommitLog up, beside or after the walk through it."""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.record_search import Found, inspect
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.common.file_window import CommitLogFile, FileWindow
from rocketbroker.store.audit.log_walk import LogWalk


class LogLookup:
    """What a walk knows of the log so far, and its records by physical offset."""

    def __init__(self, walk: LogWalk) -> None:
        self._files = walk.files
        self._bases = [file.base for file in walk.files]
        self._walk = walk

    @property
    def begin(self) -> int:
        """Physical offset of the log's first byte."""
        return self._walk.begin

    @property
    def end(self) -> int:
        """Physical offset behind the last record that the walk came to."""
        return self._walk.end

    def is_damaged(self, offsets: Positions) -> NDArray[np.bool_]:
        """Which physical offsets lie where the log is damaged."""
        return self._walk.is_damaged(offsets)

    def describe(self, offset: int) -> str:
        """Topic, queue and queue offset of the record that begins at ``offset``, empty when none does."""
        message = self.record(offset)
        return f"{message.topic}/{message.queue_id} queue offset {message.queue_offset}" if message else ""

    def record(self, offset: int) -> MessageExt | None:
        """The record that begins at ``offset``."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0 or offset >= self.end:
            return None
        return read_record(self._files[number], offset - self._bases[number])


def read_record(file: CommitLogFile, position: int) -> MessageExt | None:
    """The record that begins at a position of a file, ``None`` when none does."""
    with FileWindow(file) as window:
        found, size = inspect(window, position) if position < file.size else (Found.END, 0)
        if found is not Found.RECORD:
            return None
        try:
            return decode_record(window.at(position, size))
        except CorruptRecordError:
            return None
