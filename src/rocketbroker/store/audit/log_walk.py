"""Goes through a whole CommitLog, a window at a time, and says what in it is no sound record.

Damage does not end the walk: it goes on at the next sound record. It ends the log only where the next start cuts it
off: where an unclean stop may have torn it, and where only older records follow, which RocketMQ leaves behind the end
of a log that it has cut.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final
from zlib import crc32

import numpy as np

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_encoder import RECORD_HEADS, SYS_FLAG_POSITION
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.broken_record import what_is_wrong
from rocketbroker.codec.storefile.record_chains import chain_starts
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_window import CommitLogFile, FileWindow
from rocketbroker.store.audit.findings import Findings

_STORE_TIMESTAMP: Final = 10  # of RECORD_HEADS' fields


class LogWalk:
    """Iterates over the records of a CommitLog; complete once exhausted.

    ``end`` is the physical offset behind the last record, ``damaged`` the ranges of physical offsets that hold no sound
    record.

    Args:
        files: the files by offset.
        state: how the store was left.
        findings: takes what is wrong.
        file_size: mappedFileSizeCommitLog, ``None`` if the files have to tell.
        queued_end: physical offset behind the last message that queues know; after a clean stop the log reaches so far.
        check_crc: whether bodies are held against their checksums.
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
        # One without data, but with others behind it, was lost and made anew.
        written = [number for number, file in enumerate(files) if file.data_end]
        self._with_data = files[: written[-1] + 1] if written else []
        self._state = state
        self._findings = findings
        self._check_crc = check_crc
        self._progress = progress
        self._file_size = file_size
        self._queued_end = queued_end
        self._torn = False
        # Store time of the record before the one that the walk looks at.
        self._stored = 0

    def __iter__(self) -> Iterator[Records]:
        self._check_files()
        for number, file in enumerate(self._with_data):
            follower = self._with_data[number + 1] if number + 1 < len(self._with_data) else None
            try:
                with FileWindow(file) as window:
                    yield from self._file(window, follower)
            except OSError as error:
                self._findings.add(AuditRule.FILE_UNREADABLE, file.path, 0, str(error.strerror))
            if self._torn:
                return

    def _check_files(self) -> None:
        for before, after in pairwise(self.files):
            if before.base + before.size < after.base:
                lacking = f"the files begin at {before.base} and {after.base}, and have {before.size} bytes"
                self._findings.add(AuditRule.LOG_FILE_MISSING, before.path, before.size, lacking)
                self.damaged.append((before.base + before.size, after.base))
        sizes = [file.size for file in self.files if file.size or file is not self.files[-1]]
        usual = self._file_size or max(set(sizes), key=sizes.count, default=0)
        for file in self.files:
            if file.size != usual and (file.size or file is not self.files[-1]):
                text = f"{file.size} bytes; {usual} is the size of the others or the settings"
                self._findings.add(AuditRule.LOG_FILE_SIZE, file.path, 0, text)

    def _file(self, window: FileWindow, follower: CommitLogFile | None) -> Iterator[Records]:
        file, position = window.file, 0
        while position >= 0:
            before = position
            window.load(position, inspect(window, position)[1])
            at_once = chain_starts(window, file.data_end)
            position = int(at_once[-1]) if len(at_once) else position
            if len(at_once) > 1:
                self._stored = _store_timestamp(window, int(at_once[-2]))
            singles, position = self._one_by_one(window, position, follower)
            starts = np.concatenate((at_once[:-1], np.array(singles, np.int64)))
            records = self._sound(Records(file.base + window.start, window.array(), starts - window.start), file)
            if len(records):
                self.end = int(records.base + records.starts[-1] + records.total_size[-1])
                yield records
            if self._torn:
                return
            self._progress((file.data_end if position < 0 else position) - before)

    def _one_by_one(self, window: FileWindow, position: int, follower: CommitLogFile | None) -> tuple[list[int], int]:
        """Where records begin from ``position`` to the window's end, and where to go on; -1 at the file's end."""
        starts: list[int] = []
        while True:
            found, size = inspect(window, position)
            if found is Found.RECORD:
                if position + size > window.end:
                    if position == window.start:
                        raise StoreError(f"{window.file.path} became shorter while it was read")
                    return starts, position
                starts.append(position)
                self._stored = _store_timestamp(window, position)
                position += size
            elif found is Found.BLANK or (found is Found.END and (follower is None or position == window.file.size)):
                return starts, -1
            else:
                position = self._skip(window, position, follower)
                if position < 0 or not window.start <= position < window.end:
                    return starts, position

    def _skip(self, window: FileWindow, position: int, follower: CommitLogFile | None) -> int:
        """Note what is no record; gives where the next one begins, -1 when none does in this file."""
        file = window.file
        after = find_record(window, position + 1, file.data_end) if position < file.data_end else -1
        if self._ends_log(window, position, after, follower):
            self._torn = True
            self._findings.add(AuditRule.LOG_TORN_TAIL, file.path, position, what_is_wrong(window, position)[1])
            return -1
        end = after if after >= 0 else file.size if follower else file.data_end
        self.damaged.append((file.base + position, file.base + end))
        rule, detail = what_is_wrong(window, position)
        self._findings.add(rule, file.path, position, f"{detail}; {end - position} bytes hold no record")
        return after

    def _ends_log(self, window: FileWindow, position: int, after: int, follower: CommitLogFile | None) -> bool:
        """Whether the next start cuts the log off at what is damaged, rather than pass over it."""
        stored = _store_timestamp(window, after) if after >= 0 else _first_store_timestamp(follower)
        if self._state.unclean:
            # A message behind it was on disk for certain, so it was, too.
            return stored is None or not self._state.is_known(stored)
        is_queued = window.file.base + position < self._queued_end
        return not is_queued and (stored is None or stored < self._stored)

    def _sound(self, records: Records, file: CommitLogFile) -> Records:
        """The records up to where a wrong checksum shows a torn end; other wrong ones are noted and stay."""
        if not self._check_crc or not len(records):
            return records
        view = records.data.data
        ends = (records.body_at + records.body_length).tolist()
        found = [crc32(view[at:end]) for at, end in zip(records.body_at.tolist(), ends, strict=True)]
        expected = records.field("body_crc").astype(np.int64)
        wrong = np.flatnonzero(np.array(found, np.int64) & 0x7FFFFFFF != expected)
        for number in wrong.tolist():
            position = int(records.base + records.starts[number]) - file.base
            text = f"bodyCRC is 0x{expected[number]:08X}, the body's own is 0x{found[number] & 0x7FFFFFFF:08X}"
            if not self._state.is_known(int(records.field("store_timestamp")[number])):
                self._torn = True
                self._findings.add(AuditRule.LOG_TORN_TAIL, file.path, position, text)
                return Records(records.base, records.data, records.starts[:number])
            self._findings.add(AuditRule.RECORD_CRC, file.path, position, text)
        return records

    def is_damaged(self, offsets: Positions) -> np.ndarray:
        """Which physical offsets lie in damaged ranges."""
        if not self.damaged:
            return np.zeros(len(offsets), np.bool_)
        ranges = np.array(sorted(self.damaged), np.int64)
        number = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
        inside: np.ndarray = (number >= 0) & (offsets < ranges[np.maximum(number, 0), 1])
        return inside


def _first_store_timestamp(file: CommitLogFile | None) -> int | None:
    """Store time in ms of the first record of a file, ``None`` without one."""
    if file is None:
        return None
    with FileWindow(file) as window:
        first = find_record(window, 0, file.data_end)
        return _store_timestamp(window, first) if first >= 0 else None


def _store_timestamp(window: FileWindow, position: int) -> int:
    head = window.at(position, RECORD_HEADS[3].size)
    found: int = RECORD_HEADS[head[SYS_FLAG_POSITION + 3] >> 4 & 3].unpack_from(head)[_STORE_TIMESTAMP]
    return found
