"""Check of a whole CommitLog: yields its records window by window and notes the bytes without a record.

Damage does not end the check: it continues at the next record. Damage ends the log only where the next start
truncates it: where an unclean stop may have torn it and only older records follow. RocketMQ leaves such records after
the end of a log that it has truncated.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_decoder import RECORD_HEADS, decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.file_rules import check_log_sizes
from rocketbroker.codec.storefile.log_walk import FileWalk
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect, store_timestamp, wrong_body
from rocketbroker.codec.storefile.store_file import LogWindow
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import CorruptRecordError, StoreError
from rocketbroker.common.local_file import CommitLogFile, open_commit_log

#: Bytes of the log read at a time.
WINDOW_SIZE: Final = 16 << 20


class LogAudit:
    """The records of a CommitLog and the damage in it; complete once its iteration is exhausted.

    ``end`` is the physical offset after the last record, ``damaged`` the ranges of physical offsets without a sound
    record.

    Args:
        files: the files by offset.
        state: state in which the last broker left the store.
        findings: receives the damage.
        file_size: mappedFileSizeCommitLog, ``None`` to take it from the files.
        queued_end: physical offset after the last message that queues know; after a clean stop the log reaches it.
        check_crc: true to check bodies by their checksums as well.
        progress: called with the bytes read since the last call.
    """

    def __init__(
        self,
        files: Sequence[CommitLogFile],
        state: StoreState,
        findings: Findings,
        *,
        file_size: int | None = None,
        queued_end: int = 0,
        check_crc: bool = True,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.files = files
        self.begin = self.end = files[0].base if files else 0
        self.damaged: list[tuple[int, int]] = []
        # A file without data that is followed by others was lost and recreated.
        written = [number for number, file in enumerate(files) if file.data_end]
        self._with_data = files[: written[-1] + 1] if written else []
        self._state = state
        self._findings = findings
        self._check_crc = check_crc
        self._progress = progress
        self._file_size = file_size
        self._queued_end = queued_end
        self._torn = False
        # Store time of the record before the current one.
        self._stored = 0

    def __iter__(self) -> Iterator[Records]:
        self._check_files()
        for number, file in enumerate(self._with_data):
            follower = self._with_data[number + 1] if number + 1 < len(self._with_data) else None
            with open_commit_log(file) as source:
                try:
                    yield from self._file(file, LogWindow(source, file, WINDOW_SIZE), follower)
                except StoreError as error:
                    if not isinstance(error.__cause__, OSError):
                        raise
                    self._findings.add(AuditRule.FILE_UNREADABLE, file.path, 0, str(error.__cause__.strerror))
            if self._torn:
                return

    def _check_files(self) -> None:
        for before, after in pairwise(self.files):
            if before.base + before.size < after.base:
                lacking = f"the files begin at {before.base} and {after.base}, and have {before.size} bytes"
                self._findings.add(AuditRule.LOG_FILE_MISSING, before.path, before.size, lacking)
                self.damaged.append((before.base + before.size, after.base))
        sizes = [(file.path, file.size) for file in self.files]
        self._findings.add_faults(check_log_sizes(sizes, self._file_size or 0))

    def _file(self, file: CommitLogFile, window: LogWindow, follower: CommitLogFile | None) -> Iterator[Records]:
        walk, position, done = FileWalk(window, 0, file.data_end), 0, 0
        while position >= 0:
            walk.position = position
            for stretch in walk:
                self._stored = store_timestamp(stretch[len(stretch) - 1])
                records = self._sound(stretch.records, file)
                if len(records):
                    self.end = int(records.base + records.starts[-1] + records.total_size[-1])
                    yield records
                if self._torn:
                    return
                self._progress(walk.position - done)
                done = walk.position
            closed = follower is None or walk.position == file.size
            is_end = walk.found is Found.BLANK or (walk.found is Found.END and closed)
            position = -1 if is_end else self._skip(walk, file, follower)
        self._progress(file.data_end - done)

    def _skip(self, walk: FileWalk, file: CommitLogFile, follower: CommitLogFile | None) -> int:
        """Note the bytes that hold no record; return where the next record begins, -1 if none does in this file."""
        position = walk.position
        after = walk.next_record(file.data_end) if position < file.data_end else -1
        rule, detail = walk.damage()
        if self._ends_log(walk.window, position, after, follower):
            self._torn = True
            self._findings.add(AuditRule.LOG_TORN_TAIL, file.path, position, detail)
            return -1
        end = after if after >= 0 else file.size if follower else file.data_end
        self.damaged.append((file.base + position, file.base + end))
        self._findings.add(rule, file.path, position, f"{detail}; {end - position} bytes are not part of a record")
        return after

    def _ends_log(self, window: LogWindow, position: int, after: int, follower: CommitLogFile | None) -> bool:
        """Return true if the next start truncates the log at the damage instead of skipping it."""
        stored = _time_at(window, after) if after >= 0 else _first_store_timestamp(follower)
        if self._state.unclean:
            # A later message was certainly on disk, and so was this one.
            return stored is None or not self._state.is_known(stored)
        is_queued = window.file.base + position < self._queued_end
        return not is_queued and (stored is None or stored < self._stored)

    def _sound(self, records: Records, file: CommitLogFile) -> Records:
        """Return the records before a wrong checksum that shows a torn end; note other wrong ones and keep them."""
        for number in records.wrong_bodies().tolist() if self._check_crc else ():
            position = int(records.base + records.starts[number]) - file.base
            begin, end = int(records.starts[number]), int(records.body_at[number] + records.body_length[number])
            text = wrong_body(records.data[begin:end].data)
            if not self._state.is_known(int(records.field("store_timestamp")[number])):
                self._torn = True
                self._findings.add(AuditRule.LOG_TORN_TAIL, file.path, position, text)
                return Records(records.base, records.data, records.starts[:number])
            self._findings.add(AuditRule.RECORD_CRC, file.path, position, text)
        return records

    def is_damaged(self, offsets: Positions) -> np.ndarray:
        """Return a mask of the physical offsets that are in damaged ranges."""
        if not self.damaged:
            return np.zeros(len(offsets), np.bool_)
        ranges = np.array(sorted(self.damaged), np.int64)
        number = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
        inside: np.ndarray = (number >= 0) & (offsets < ranges[np.maximum(number, 0), 1])
        return inside


def _first_store_timestamp(file: CommitLogFile | None) -> int | None:
    """Return the store time in ms of the first record of a file, ``None`` without one."""
    if file is None:
        return None
    with open_commit_log(file) as source:
        window = LogWindow(source, file)
        first = find_record(window, 0, file.data_end)
        return _time_at(window, first) if first >= 0 else None


def _time_at(window: LogWindow, position: int) -> int:
    return store_timestamp(window.at(position, RECORD_HEADS[3].size))


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
