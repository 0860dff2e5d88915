"""Single records of the CommitLog by their physical offset, during or after its check."""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.log_window import LogWindow
from rocketbroker.codec.storefile.record_search import Found, inspect
from rocketbroker.common.commit_log_file import CommitLogFile, open_commit_log
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.store.audit.log_audit import LogAudit


class LogLookup:
    """The part of the log that was checked so far, and its records by physical offset."""

    def __init__(self, walk: LogAudit) -> None:
        self._files = walk.files
        self._bases = [file.base for file in walk.files]
        self._walk = walk

    @property
    def begin(self) -> int:
        """Physical offset of the log's first byte."""
        return self._walk.begin

    @property
    def end(self) -> int:
        """Physical offset after the last record that was checked."""
        return self._walk.end

    def is_damaged(self, offsets: Positions) -> NDArray[np.bool_]:
        """Return a mask of the physical offsets where the log is damaged."""
        return self._walk.is_damaged(offsets)

    def describe(self, offset: int) -> str:
        """Return topic, queue and queue offset of the record that begins at ``offset``, an empty text if none does."""
        message = self.record(offset)
        return f"{message.topic}/{message.queue_id} queue offset {message.queue_offset}" if message else ""

    def record(self, offset: int) -> MessageExt | None:
        """Return the record that begins at ``offset``, if one does."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0 or offset >= self.end:
            return None
        return read_record(self._files[number], offset - self._bases[number])


def read_record(file: CommitLogFile, position: int) -> MessageExt | None:
    """Return the record that begins at a position of a file, if one does."""
    with open_commit_log(file) as source:
        window = LogWindow(source, file)
        found, size = inspect(window, position) if position < file.size else (Found.END, 0)
        if found is not Found.RECORD:
            return None
        try:
            return decode_record(window.at(position, size))
        except CorruptRecordError:
            return None
