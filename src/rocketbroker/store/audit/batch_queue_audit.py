"""Check of one BatchConsumeQueue against the records of the CommitLog.

Records come window by window in the order of the log, and so do entries: each is looked up by its place in the log.
Entries without a record, and records without an entry, are reported at the end.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.file_rules import check_queue_files
from rocketbroker.codec.storefile.queue_files import Entries, is_entry
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.store.audit.findings import Findings
from rocketbroker.store.audit.log_lookup import LogLookup
from rocketbroker.store.audit.queue_files import QueueFolder

# Fields that an entry copies from its record, except the place in the log; ``BatchRecords`` has columns of the same
# names.
_SAME = ("size", "tags_code", "store_time", "msg_base_offset", "batch_size")


class BatchRecords(NamedTuple):
    """Records of one queue in the order of the log; columns have the shape (n,)."""

    commit_log_offset: Positions
    size: Positions
    tags_code: Positions
    store_time: Positions
    msg_base_offset: Positions
    batch_size: Positions


class BatchQueueAudit:
    """Check of one queue.

    Args:
        directory: its folder.
        log_begin: physical offset of the first byte of the log; records of entries before it have expired.
        state: state in which the last broker left the store.
        findings: receives the findings.
    """

    def __init__(self, directory: Path, log_begin: int, state: StoreState, findings: Findings) -> None:
        self._files = QueueFolder(directory, BATCH_CONSUME_QUEUE_ENTRY)
        findings.add_faults(check_queue_files(self._files))
        self.name = f"{directory.parent.name}/{directory.name}"
        self._log_begin = log_begin
        self._state = state
        self._findings = findings
        self._entries, self._numbers = self._read()
        self._settled = np.zeros(len(self._entries), np.bool_)
        bases = self._column("msg_base_offset")
        ends = bases + self._column("batch_size")
        #: Queue offset after its last message.
        self.end = int(ends[-1]) if len(ends) else 0
        self._check_order(bases, ends)
        # Entries that only mark where the queue continues lead to no record of their own.
        self._real = is_entry(self._entries) & (self._entries["size"] != MIN_RECORD_SIZE)
        self._waiting: list[tuple[int, int, int]] = []

    def _read(self) -> tuple[Entries, Positions]:
        """Return the written entries, and their numbers."""
        entries = self._files.read(self._files.first, self._files.end)
        written = np.flatnonzero(entries["size"])
        return entries[written], written + self._files.first

    def _column(self, name: str) -> Positions:
        column: Positions = self._entries[name].astype(np.int64)
        return column

    @property
    def queued_end(self) -> int:
        """Physical offset after the last record that the queue knows."""
        offsets = self._column("commit_log_offset")[self._real]
        is_there = offsets >= self._log_begin
        return int((offsets + self._column("size")[self._real])[is_there].max()) if is_there.any() else 0

    def _check_order(self, bases: Positions, ends: Positions) -> None:
        wrong = np.flatnonzero((bases[1:] < ends[:-1]) | (ends[1:] <= bases[1:])) + 1
        for number in wrong.tolist():
            text = f"{bases[number]} to {ends[number]} follows {bases[number - 1]} to {ends[number - 1]}"
            self._add(AuditRule.QUEUE_OFFSET_ORDER, number, text)

    def _add(self, rule: AuditRule, number: int, text: str, *, mended: bool = False) -> None:
        """Add a finding about the entry with index ``number``, about the queue's end for -1."""
        path, position = self._files.place(int(self._numbers[number]) if len(self._numbers) else 0)
        place = f"{self.name} queue offset {self._entries['msg_base_offset'][number]}" if number >= 0 else self.name
        self._findings.add(rule, path, position, f"{place}: {text}", mended=mended)

    def take(self, records: BatchRecords) -> None:
        """Compare records with their entries."""
        real = np.flatnonzero(self._real)
        offsets = self._column("commit_log_offset")[real]
        order = np.argsort(offsets, kind="stable")
        places = np.searchsorted(offsets[order], records.commit_log_offset)
        inside = places < len(order)
        numbers = np.zeros(len(places), np.int64)
        numbers[inside] = real[order[places[inside]]]
        found = inside.copy()
        found[inside] = self._column("commit_log_offset")[numbers[inside]] == records.commit_log_offset[inside]
        self._settled[numbers[found]] = True
        self._compare(records, np.flatnonzero(found), numbers)
        # Records before the queue's oldest one belong to a topic that was deleted and created again.
        oldest = int(offsets.min()) if len(offsets) else -1
        for at in np.flatnonzero(~found).tolist():
            offset = int(records.commit_log_offset[at])
            if offset >= oldest:
                self._waiting.append((offset, int(records.msg_base_offset[at]), int(records.store_time[at])))

    def _compare(self, records: BatchRecords, found: Positions, numbers: Positions) -> None:
        entries = self._entries[numbers[found]]
        differ = np.zeros(len(found), np.bool_)
        for name in _SAME:
            differ |= entries[name] != getattr(records, name)[found]
        for at in np.flatnonzero(differ).tolist():
            entry, record = entries[at], int(found[at])
            said = ", ".join(f"{name} {entry[name]}" for name in _SAME)
            wanted = ", ".join(str(getattr(records, name)[record]) for name in _SAME)
            text = f"the entry has {said}, but the record at {records.commit_log_offset[record]} has {wanted}"
            mended = not self._state.is_known(int(records.store_time[record]))
            self._add(AuditRule.QUEUE_ENTRY_MISMATCH, int(numbers[record]), text, mended=mended)

    def finish(self, log: LogLookup) -> None:
        """Add the findings that are certain only after all records were seen."""
        offsets = self._column("commit_log_offset")
        wrong = self._real & ~self._settled & ((offsets < 0) | (offsets >= self._log_begin)) & ~log.is_damaged(offsets)
        led_to = set()
        for number in np.flatnonzero(wrong).tolist():
            led_to.add(int(offsets[number]))
            self._tell_astray(number, int(offsets[number]), log)
        for offset, base, stored in self._waiting:
            if offset not in led_to:
                text = f"the record at {offset} with queue offset {base}"
                self._add(AuditRule.MESSAGE_NOT_QUEUED, -1, text, mended=not self._state.is_known(stored))

    def _tell_astray(self, number: int, offset: int, log: LogLookup) -> None:
        known = self._state.is_known(int(self._entries["store_time"][number]))
        mended = self._state.unclean and (offset >= log.end or not known)
        if offset >= log.end:
            text = f"the entry leads to {offset}, but the log ends at {log.end}"
            self._add(AuditRule.QUEUE_ENTRY_BEYOND_LOG, number, text, mended=mended)
        elif there := log.describe(offset):
            self._add(AuditRule.QUEUE_ENTRY_MISMATCH, number, f"the record at {offset} is {there}", mended=mended)
        else:
            self._add(AuditRule.QUEUE_ENTRY_UNREADABLE, number, f"no record begins at {offset}", mended=mended)
