"""Check of one ConsumeQueue against the messages of the CommitLog.

Messages come window by window, in the order of the log. A message is matched at once if the entry with its queue offset
leads to it. The others wait to the end: only then is it certain that an entry leads to a wrong place, that a queue
offset was used twice, or that an entry is missing.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.file_rules import check_queue_files
from rocketbroker.codec.storefile.queue_files import Entries, is_entry
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.store.audit.findings import Findings
from rocketbroker.store.audit.log_lookup import LogLookup
from rocketbroker.store.audit.queue_files import QueueFolder

# A record with a damaged queue offset must not cause a whole queue to be read.
_WIDEST = 1 << 20


class QueueMessages(NamedTuple):
    """Messages of one queue that should have an entry, in the order of the log; columns of shape (n,)."""

    offsets: Positions
    queue_offsets: Positions
    sizes: Positions
    tags_codes: Positions
    store_timestamps: Positions

    def where(self, chosen: NDArray[np.bool_]) -> "QueueMessages":
        """Return the chosen messages."""
        return QueueMessages(*(column[chosen] for column in self))


class QueueAudit:
    """Check of one queue.

    Args:
        directory: its folder.
        log_begin: physical offset of the first byte of the log; messages of entries before it have expired.
        state: state in which the last broker left the store.
        findings: receives the findings.
    """

    def __init__(self, directory: Path, log_begin: int, state: StoreState, findings: Findings) -> None:
        self.files = QueueFolder(directory, CONSUME_QUEUE_ENTRY)
        findings.add_faults(check_queue_files(self.files))
        self.name = f"{directory.parent.name}/{directory.name}"
        self._log_begin = log_begin
        self._state = state
        self._findings = findings
        self.first_entry = self.end = self.files.first
        # Physical offset of the oldest message that the queue knows: older ones belong to a deleted topic.
        self._oldest = -1
        # Physical offset after the last message that it knows.
        self.queued_end = 0
        self._survey()
        # Mask of the places with an entry that leads to its message.
        self._settled = np.zeros(max(self.end - self.files.first, 0), np.bool_)
        self._last = -1
        self._waiting: list[QueueMessages] = []
        # Physical offset by queue offset, of entries that lead to another record.
        self._astray: dict[int, int] = {}

    def _survey(self) -> None:
        first = -1
        for start, entries in self.files.chunks():
            written = np.flatnonzero(entries["size"])
            if len(written):
                self.end = start + int(written[-1]) + 1
            real = np.flatnonzero(is_entry(entries) & (entries["size"] > 0))
            if len(real) and first < 0:
                first = start + int(real[0])
            offsets = entries["commit_log_offset"][real]
            is_there = offsets >= self._log_begin
            offsets = offsets[is_there]
            if len(offsets):
                self.queued_end = max(self.queued_end, int((offsets + entries["size"][real][is_there]).max()))
                oldest = int(offsets.min())
                self._oldest = oldest if self._oldest < 0 else min(self._oldest, oldest)
        self.first_entry = first if first >= 0 else self.end

    def take(self, messages: QueueMessages) -> None:
        """Compare messages with their entries."""
        # A topic that was deleted and created again restarts at 0; its queue knows only the new messages.
        if self._oldest > int(messages.offsets[0]):
            of_old = (messages.offsets < self._oldest) & (messages.queue_offsets >= self.first_entry)
            messages = messages.where(~of_old)
        if not len(messages.offsets):
            return
        entries = self._entries_of(messages.queue_offsets)
        found = entries["commit_log_offset"] == messages.offsets
        # A broker that has the store open may have entered more since the survey.
        found &= (entries["size"] != 0) & (messages.queue_offsets < self.end)
        if not found.all():
            self._waiting.append(messages.where(~found))
            messages, entries = messages.where(found), entries[found]
        if len(messages.offsets):
            self._settle(messages, entries)

    def _entries_of(self, queue_offsets: Positions) -> Entries:
        low, high = int(queue_offsets.min()), int(queue_offsets.max())
        if high - low <= _WIDEST and low >= 0:
            return self.files.read(low, high + 1)[queue_offsets - low]
        return np.concatenate([self.files.read(at, at + 1) for at in np.maximum(queue_offsets, 0).tolist()])

    def _settle(self, messages: QueueMessages, entries: Entries) -> None:
        differ = (entries["size"] != messages.sizes) | (entries["tags_code"] != messages.tags_codes)
        for number in np.flatnonzero(differ).tolist():
            self._mismatch(messages, number, entries[number])
        queue_offsets = messages.queue_offsets
        before = np.concatenate(([self._last], queue_offsets[:-1]))
        for number in np.flatnonzero(queue_offsets <= before).tolist():
            text = (
                f"queue offset {queue_offsets[number]} follows {before[number]} in the log, "
                f"at offset {messages.offsets[number]}"
            )
            self._add(AuditRule.QUEUE_OFFSET_ORDER, int(queue_offsets[number]), text)
        self._last = int(queue_offsets[-1])
        self._settled[queue_offsets - self.files.first] = True

    def _mismatch(self, messages: QueueMessages, number: int, entry: np.void) -> None:
        wanted = [int(messages.sizes[number]), int(messages.tags_codes[number])]
        text = (
            f"the entry has size {entry['size']} and tags code {entry['tags_code']}, but "
            f"the record at offset {messages.offsets[number]} has {wanted[0]} and {wanted[1]}"
        )
        mended = not self._state.is_known(int(messages.store_timestamps[number]))
        self._add(AuditRule.QUEUE_ENTRY_MISMATCH, int(messages.queue_offsets[number]), text, mended=mended)

    def _add(self, rule: AuditRule, queue_offset: int, text: str, *, mended: bool = False) -> None:
        path, position = self.files.place(queue_offset)
        self._findings.add(rule, path, position, f"{self.name} queue offset {queue_offset}: {text}", mended=mended)

    # -- after all messages

    def find_astray(self, log: LogLookup) -> set[int]:
        """Add findings on entries that lead to a wrong record; return the physical offsets to which they lead."""
        waiting = self._all_waiting()
        astray = self._astray
        for start, chunk in self.files.chunks():
            entries = chunk[: max(self.end - start, 0)]
            is_open = ~self._settled[start - self.files.first :][: len(entries)]
            self._holes(start, is_open & (entries["size"] == 0), waiting)
            bad = np.flatnonzero(is_open & is_entry(entries))
            offsets = entries["commit_log_offset"][bad].astype(np.int64)
            is_wrong = ((offsets < 0) | (offsets >= self._log_begin)) & ~log.is_damaged(offsets)
            astray.update(zip((bad + start)[is_wrong].tolist(), offsets[is_wrong].tolist(), strict=True))
        for at, offset in astray.items():
            self._tell_astray(at, offset, waiting, log)
        return set(astray.values())

    def _all_waiting(self) -> QueueMessages:
        if self._waiting:
            return QueueMessages(*map(np.concatenate, zip(*self._waiting, strict=True)))
        return QueueMessages(*[np.empty(0, np.int64)] * 5)

    def _holes(self, start: int, is_hole: NDArray[np.bool_], waiting: QueueMessages) -> None:
        """Add findings on places without an entry, between others, whose message is missing too."""
        places = np.setdiff1d(np.flatnonzero(is_hole) + start, waiting.queue_offsets)
        if not len(places):
            return
        for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
            upto = f" to {run[-1]}" if len(run) > 1 else ""
            # After an unclean stop the queue may be ahead of a log that was truncated.
            mended = self._state.unclean and int(run[0]) > self._last
            self._add(AuditRule.QUEUE_OFFSET_MISSING, int(run[0]), f"neither message nor entry{upto}", mended=mended)

    def _tell_astray(self, at: int, offset: int, waiting: QueueMessages, log: LogLookup) -> None:
        beyond = offset >= log.end
        own = waiting.queue_offsets == at
        mended = self._state.unclean and (beyond or not self._all_known(waiting.where(own)))
        if beyond:
            text = f"the entry leads to {offset}, but the log ends at {log.end}"
            self._add(AuditRule.QUEUE_ENTRY_BEYOND_LOG, at, text, mended=mended)
        elif there := log.describe(offset):
            self._add(AuditRule.QUEUE_ENTRY_MISMATCH, at, f"the record at {offset} is {there}", mended=mended)
        else:
            self._add(AuditRule.QUEUE_ENTRY_UNREADABLE, at, f"no record begins at {offset}", mended=mended)

    def _all_known(self, messages: QueueMessages) -> bool:
        return all(map(self._state.is_known, messages.store_timestamps.tolist()))

    def find_unqueued(self, led_to: set[int]) -> None:
        """Add findings on messages without an entry, except those at ``led_to``, which other findings name."""
        waiting = self._all_waiting()
        for offset, queue_offset, timestamp in zip(
            waiting.offsets.tolist(), waiting.queue_offsets.tolist(), waiting.store_timestamps.tolist(), strict=True
        ):
            if queue_offset in self._astray or offset in led_to:
                continue
            if self._is_settled(queue_offset):
                text = f"the message at {offset} has the same queue offset"
                self._add(AuditRule.QUEUE_OFFSET_REPEATED, queue_offset, text)
            else:
                mended = not self._state.is_known(timestamp)
                self._add(AuditRule.MESSAGE_NOT_QUEUED, max(queue_offset, 0), f"the message at {offset}", mended=mended)

    def _is_settled(self, queue_offset: int) -> bool:
        at = queue_offset - self.files.first
        return 0 <= at < len(self._settled) and bool(self._settled[at])
