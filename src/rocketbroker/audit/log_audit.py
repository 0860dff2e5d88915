"""Check of one file of the CommitLog: yields its records window by window and notes the bytes without a record.

Damage does not end the check: it continues at the next record. Damage ends the log only where the next start truncates
it: where an unclean stop may have torn it and only older records follow. RocketMQ leaves such records after the end of
a log that it has truncated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.store_files import LogSegment, StoreFacts, StoreFolder, opened
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_decoder import RECORD_HEADS
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.file_rules import check_log_sizes
from rocketbroker.codec.storefile.log_walk import FileWalk
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, store_timestamp, wrong_body
from rocketbroker.codec.storefile.store_file import LogWindow
from rocketbroker.common.errors import StoreError

#: Bytes of the log read at a time.
WINDOW_SIZE: Final = 16 << 20

Range = tuple[int, int]


@dataclass(slots=True)
class LogPart:
    """Result of the check of one file, its number among those with data; offsets are physical ones.

    ``end`` is after the last record, 0 without one. ``damaged`` are ranges without a sound record, ``torn`` is the
    range that the next start truncates. ``removed`` is true if a broker removed the file meanwhile.
    """

    number: int
    messages: int = 0
    end: int = 0
    newest_ms: int | None = None
    damaged: list[Range] = field(default_factory=list)
    torn: Range | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The log after the check of all its files: physical offsets, damaged ranges, store times in ms by file."""

    begin: int
    end: int
    messages: int
    damaged: Sequence[Range]
    newest_ms: Mapping[int, int]

    @classmethod
    def of(cls, facts: StoreFacts, parts: Sequence[LogPart], gaps: Sequence[Range], begin: int) -> "CheckedLog":
        """Put the parts of a log together, in order and up to the first torn one; it begins at ``begin`` now."""
        newest = {part.number: part.newest_ms for part in parts if part.newest_ms is not None}
        damaged = sorted([*gaps, *(each for part in parts for each in part.damaged)])
        end = max((part.end for part in parts), default=0) or facts.log_begin
        return cls(begin, end, sum(part.messages for part in parts), damaged, newest)

    def is_damaged(self, offsets: Positions) -> NDArray[np.bool_]:
        """Return a mask of the physical offsets that are in damaged ranges."""
        if not self.damaged:
            return np.zeros(len(offsets), np.bool_)
        ranges = np.array(self.damaged, np.int64)
        number = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
        ends = np.maximum.accumulate(ranges[:, 1])
        inside: NDArray[np.bool_] = (number >= 0) & (offsets < ends[np.maximum(number, 0)])
        return inside


def check_log_files(facts: StoreFacts, findings: Findings) -> list[Range]:
    """Check the sizes of the files, and return the gaps between them."""
    gaps = []
    for before, after in pairwise(facts.segments):
        end = before.base + before.size
        if end < after.base:
            lacking = f"the files begin at {before.base} and {after.base}, and have {before.size} bytes"
            findings.add(AuditRule.LOG_FILE_MISSING, before.path, before.size, lacking, physical_offset=end)
            gaps.append((end, after.base))
    sizes = [(segment.path, segment.size) for segment in facts.segments]
    findings.add_faults(check_log_sizes(sizes, facts.options.log_file_size))
    return gaps


class LogAudit:
    """The records of one file of a CommitLog and the damage in it; ``part`` is complete once they are exhausted.

    Args:
        folder: the store.
        facts: facts about it.
        number: number of the file among those with data.
        queued_end: physical offset after the last message that queues know; after a clean stop the log reaches it.
        findings: receives the damage.
        progress: called with the bytes read since the last call.
    """

    def __init__(
        self,
        folder: StoreFolder,
        facts: StoreFacts,
        number: int,
        queued_end: int,
        findings: Findings,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        files = facts.with_data
        self.part = LogPart(number)
        self._folder = folder
        self._segment = files[number]
        self._before = files[:number]
        self._follower = files[number + 1] if number + 1 < len(files) else None
        self._state = facts.state
        self._check_crc = facts.options.check_crc
        self._queued_end = queued_end
        self._findings = findings
        self._progress = progress
        # Store time of the record before the current one, once it is known.
        self._stored: int | None = None

    def __iter__(self) -> Iterator[Records]:
        segment, part = self._segment, self.part
        try:
            with opened(self._folder, segment.path) as source:
                for records in self._file(LogWindow(source, segment, WINDOW_SIZE)):
                    part.end = int(records.base + records.starts[-1] + records.total_size[-1])
                    part.messages += len(records)
                    newest = int(np.max(records.field("store_timestamp")))
                    part.newest_ms = newest if part.newest_ms is None else max(part.newest_ms, newest)
                    yield records
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, FileNotFoundError):
                part.removed = True
            elif isinstance(cause, OSError):
                self._add(AuditRule.FILE_UNREADABLE, 0, str(cause.strerror))
            else:
                raise

    def _file(self, window: LogWindow) -> Iterator[Records]:
        segment = self._segment
        walk, position, done = FileWalk(window, 0, segment.data_end), 0, 0
        while position >= 0:
            walk.position = position
            for stretch in walk:
                self._stored = store_timestamp(stretch[len(stretch) - 1])
                records = self._sound(stretch.records)
                if len(records):
                    yield records
                if self.part.torn:
                    return
                self._progress(walk.position - done)
                done = walk.position
            closed = self._follower is None or walk.position == segment.size
            is_end = walk.found is Found.BLANK or (walk.found is Found.END and closed)
            position = -1 if is_end else self._skip(walk)
        self._progress(segment.data_end - done)

    def _skip(self, walk: FileWalk) -> int:
        """Note the bytes that hold no record; return where the next record begins, -1 if none does in this file."""
        segment, position = self._segment, walk.position
        after = walk.next_record(segment.data_end) if position < segment.data_end else -1
        rule, detail = walk.damage()
        if self._ends_log(walk.window, position, after):
            self._tear(position, detail)
            return -1
        end = after if after >= 0 else segment.size if self._follower else segment.data_end
        self.part.damaged.append((segment.base + position, segment.base + end))
        self._add(rule, position, f"{detail}; {end - position} bytes are not part of a record")
        return after

    def _ends_log(self, window: LogWindow, position: int, after: int) -> bool:
        """Return true if the next start truncates the log at the damage instead of skipping it.

        After an unclean stop it is skipped only if a later message was certainly on disk: then this one was too. After
        a clean stop a queue entry behind the damage, or a newer record, shows that the log went on. An older record is
        one that RocketMQ left after the end of a log that it truncated.
        """
        stored = _time_at(window, after) if after >= 0 else self._first_stored(self._follower)
        if self._state.unclean:
            return stored is None or not self._state.is_known(stored)
        is_queued = self._segment.base + position < self._queued_end
        return not is_queued and (stored is None or stored < self._stored_before())

    def _stored_before(self) -> int:
        """Return the store time of the record before the damage, which may be in an earlier file; 0 without one."""
        for segment in reversed(self._before) if self._stored is None else ():
            with opened(self._folder, segment.path, empty_if_gone=True) as source:
                walk, position = FileWalk(LogWindow(source, segment, WINDOW_SIZE), 0, segment.data_end), 0
                while position >= 0:
                    walk.position = position
                    for stretch in walk:
                        self._stored = store_timestamp(stretch[len(stretch) - 1])
                    position = walk.next_record(segment.data_end) if walk.found is Found.BROKEN else -1
            if self._stored is not None:
                break
        return self._stored or 0

    def _first_stored(self, segment: LogSegment | None) -> int | None:
        """Return the store time in ms of the first record of a file, ``None`` without one."""
        if segment is None:
            return None
        with opened(self._folder, segment.path, empty_if_gone=True) as source:
            window = LogWindow(source, segment)
            first = find_record(window, 0, segment.data_end)
            return _time_at(window, first) if first >= 0 else None

    def _sound(self, records: Records) -> Records:
        """Return the records before a wrong checksum that shows a torn end; note other wrong ones and keep them."""
        for number in records.wrong_bodies().tolist() if self._check_crc else ():
            position = int(records.base + records.starts[number]) - self._segment.base
            begin, end = int(records.starts[number]), int(records.body_at[number] + records.body_length[number])
            text = wrong_body(records.data[begin:end].data)
            if not self._state.is_known(int(records.field("store_timestamp")[number])):
                self._tear(position, text)
                return Records(records.base, records.data, records.starts[:number])
            self._add(AuditRule.RECORD_CRC, position, text)
        return records

    def _tear(self, position: int, detail: str) -> None:
        self.part.torn = self._segment.base + position, self._segment.base + self._segment.data_end
        self._add(AuditRule.LOG_TORN_TAIL, position, detail)

    def _add(self, rule: AuditRule, position: int, detail: str) -> None:
        offset = self._segment.base + position
        self._findings.add(rule, self._segment.path, position, detail, physical_offset=offset)


def _time_at(window: LogWindow, position: int) -> int:
    return store_timestamp(window.at(position, RECORD_HEADS[3].size))
