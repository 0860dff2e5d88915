"""Check of the queues, ConsumeQueues and BatchConsumeQueues, against the messages of the CommitLog.

A queue is checked in three steps, so that files of the log and queues can be checked apart and in any order:

1. ``survey_queue`` reads the entries and finds where the queue begins and ends.
2. ``QueueAudit`` matches the messages in one file of the log with their entries. A message is matched if an entry leads
   to it. The others wait: only with all files is it certain that an entry leads to a wrong place, that a queue offset
   was used twice, or that an entry is missing.
3. ``QueueJudge`` puts together what was found in all files, and reads the entries once more for those unmatched.

The kinds differ in three things. Entry n of a ConsumeQueue is that of queue offset n, so a message is looked up by its
queue offset; an entry of a BatchConsumeQueue has a queue offset of its own and represents several messages, so a record
is looked up by its place in the log. The queue offsets of a ConsumeQueue are its places, so they are compared with the
order of the log; those of a BatchConsumeQueue are compared with each other. A hole in the one is an unwritten place, in
the other a gap between two entries.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.log_audit import CheckedLog
from rocketbroker.audit.store_files import (
    QueueFolder,
    Spans,
    StoreFacts,
    StoreFolder,
    in_runs,
    queue_name,
    read_record,
    runs_of,
)
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.file_rules import check_queue_files
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Entries, is_entry
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.window_messages import WindowMessages, due_times

# Entries read at a time, 20 MB of a ConsumeQueue.
_AT_ONCE: Final = 1 << 20
# A record with a damaged queue offset must not cause a whole queue to be read.
_WIDEST: Final = 1 << 20
# Fields of an entry that repeat those of its record, by kind, and their names in findings.
_SAME: Final = {
    CONSUME_QUEUE: {"size": "size", "tags_code": "tags code"},
    BATCH_CONSUME_QUEUE: {
        "size": "size",
        "tags_code": "tags code",
        "store_time": "store time",
        "msg_base_offset": "queue offset",
        "batch_size": "count",
    },
}
_HOUR_MS: Final = 3_600_000


class QueueMessages(NamedTuple):
    """Messages of one queue that should have an entry, in the order of the log; columns of shape (n,).

    They are named like the fields of an entry. ``batch_size`` is the number of messages in a record.
    """

    commit_log_offset: Positions
    size: Positions
    tags_code: Positions
    store_time: Positions
    msg_base_offset: Positions
    batch_size: Positions

    @classmethod
    def joined(cls, parts: Sequence["QueueMessages"]) -> "QueueMessages":
        """Return the messages of all parts."""
        if not parts:
            return cls(*[np.empty(0, np.int64)] * len(cls._fields))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def where(self, chosen: NDArray[np.bool_]) -> "QueueMessages":
        """Return the chosen messages."""
        return QueueMessages(*(column[chosen] for column in self))

    def __bool__(self) -> bool:
        return len(self.commit_log_offset) > 0


class QueueSurvey(NamedTuple):
    """Begin and end of a queue.

    ``end`` is the number after the last written entry, ``end_offset`` the queue offset there. ``first_offset`` is the
    queue offset of the first entry that leads to a message, ``oldest`` the physical offset of the oldest message that
    the queue knows, -1 for none, and ``queued_end`` that after the last one.
    """

    path: str
    end: int
    end_offset: int
    first_offset: int
    oldest: int
    queued_end: int
    spans: Spans

    @property
    def name(self) -> tuple[str, int]:
        """Topic and number."""
        return queue_name(self.path)


class QueueEvidence(NamedTuple):
    """Matches of the messages in one file of the log with the entries of a queue.

    ``settled`` are runs of the numbers of entries that lead to their message. ``first`` and ``last`` are queue offset
    and physical offset of the first and the last message with one.
    """

    settled: NDArray[np.int64]
    first: tuple[int, int] | None
    last: tuple[int, int] | None
    waiting: QueueMessages


class UnqueuedMessages(NamedTuple):
    """Messages without an entry: physical offset, queue offset, store time; ``taken`` if others have the offset.

    ``last`` is the number of the last written entry of the queue.
    """

    path: str
    last: int
    offsets: Positions
    queue_offsets: Positions
    store_times: Positions
    taken: NDArray[np.bool_]


def _is_real(entries: Entries) -> NDArray[np.bool_]:
    """Return a mask of the entries that lead to a record; some of a BatchConsumeQueue only say where it continues."""
    found = is_entry(entries)
    return found & (entries["size"] != MIN_RECORD_SIZE) if "batch_size" in (entries.dtype.names or ()) else found


def _chunks(files: QueueFolder, start: int, end: int) -> Iterator[tuple[int, Entries]]:
    """Yield the places of a queue in chunks with the number of their first entry; zeros stand for lacking files."""
    for begin in range(max(files.first, start), min(files.end, end), _AT_ONCE):
        yield begin, files.read(begin, min(begin + _AT_ONCE, files.end, end))


def _extents(entries: Entries, numbers: Positions) -> tuple[Positions, Positions]:
    """Return queue offset and number of messages of each entry."""
    if "batch_size" in (entries.dtype.names or ()):
        return entries["msg_base_offset"].astype(np.int64), entries["batch_size"].astype(np.int64)
    return numbers, np.ones(len(numbers), np.int64)


def survey_queue(folder: StoreFolder, facts: StoreFacts, path: str, findings: Findings) -> QueueSurvey:
    """Read a queue and add the faults of its files."""
    files, spans = QueueFolder(folder, path), Spans()
    findings.add_faults(check_queue_files(files))
    end = end_offset = files.first
    if path.startswith(BATCH_CONSUME_QUEUE):
        end_offset = 0
    first, oldest, queued_end = -1, -1, 0
    for start, entries in _chunks(files, 0, files.end):
        written = np.flatnonzero(entries["size"])
        if len(written):
            end = start + int(written[-1]) + 1
            bases, counts = _extents(entries[written[-1:]], written[-1:] + start)
            end_offset = int(bases[0]) + int(counts[0])
        real = np.flatnonzero(_is_real(entries) & (entries["size"] > 0))
        if not len(real):
            continue
        if first < 0:
            first = int(_extents(entries[real[:1]], real[:1] + start)[0][0])
        offsets, sizes = (entries[name][real].astype(np.int64) for name in ("commit_log_offset", "size"))
        is_there = offsets >= facts.log_begin
        if is_there.any():
            queued_end = max(queued_end, int((offsets + sizes)[is_there].max()))
            lowest = int(offsets[is_there].min())
            oldest = lowest if oldest < 0 else min(oldest, lowest)
        if path.startswith(BATCH_CONSUME_QUEUE):
            spans.add(facts, start, entries["commit_log_offset"].astype(np.int64))
    return QueueSurvey(path, end, end_offset, first if first >= 0 else end_offset, oldest, queued_end, spans)


class QueueAudit:
    """Match of the messages in one file of the log with the entries of one queue.

    Args:
        folder: the store.
        survey: the queue.
        number: number of the log's file.
        facts: facts about the store.
        findings: receives the findings that need no other file.
    """

    def __init__(
        self, folder: StoreFolder, survey: QueueSurvey, number: int, facts: StoreFacts, findings: Findings
    ) -> None:
        self._survey = survey
        self._kind = survey.path.split("/")[0]
        # A message whose entry a broker removes meanwhile was removed before; see ``audit_segment``.
        self._files = QueueFolder(folder, survey.path, empty_if_gone=True)
        self._span = survey.spans.get(number, (0, 0))
        self._state = facts.state
        self._findings = findings
        self._settled: list[Positions] = []
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._waiting: list[QueueMessages] = []

    def take(self, messages: QueueMessages) -> None:
        """Compare messages with their entries."""
        survey = self._survey
        # A topic that was deleted and created again restarts at 0; its queue knows only the new messages.
        of_old = (messages.commit_log_offset < survey.oldest) & (messages.msg_base_offset >= survey.first_offset)
        messages = messages.where(~of_old)
        if not messages:
            return
        by_place = self._kind == BATCH_CONSUME_QUEUE
        numbers, entries = self._by_place(messages) if by_place else self._by_queue_offset(messages)
        found = entries["commit_log_offset"] == messages.commit_log_offset
        # A broker that has the store open may have entered more since the survey.
        found &= (entries["size"] != 0) & (numbers < survey.end)
        if not found.all():
            self._waiting.append(messages.where(~found))
        if found.any():
            self._settle(messages.where(found), numbers[found], entries[found])

    def _by_queue_offset(self, messages: QueueMessages) -> tuple[Positions, Entries]:
        numbers = messages.msg_base_offset
        low, high = int(numbers.min()), int(numbers.max())
        if high - low <= _WIDEST and low >= 0:
            return numbers, self._files.read(low, high + 1)[numbers - low]
        return numbers, np.concatenate([self._files.read(at, at + 1) for at in np.maximum(numbers, 0).tolist()])

    @cached_property
    def _placed(self) -> tuple[Positions, Entries]:
        """Numbers and entries that lead into the file of the log, by physical offset."""
        start, stop = self._span
        entries = self._files.read(start, stop)
        real = np.flatnonzero(_is_real(entries))
        order = real[np.argsort(entries["commit_log_offset"][real], kind="stable")]
        # A last place for messages without an entry.
        return np.append(order + start, -1), np.append(entries[order], np.zeros(1, entries.dtype))

    def _by_place(self, messages: QueueMessages) -> tuple[Positions, Entries]:
        numbers, entries = self._placed
        at = np.searchsorted(entries["commit_log_offset"][:-1], messages.commit_log_offset)
        return numbers[at], entries[at]

    def _settle(self, messages: QueueMessages, numbers: Positions, entries: Entries) -> None:
        same = _SAME[self._kind]
        differ = np.zeros(len(numbers), np.bool_)
        for name in same:
            differ |= entries[name] != getattr(messages, name)
        for at in np.flatnonzero(differ).tolist():
            actual = " and ".join(f"{label} {entries[name][at]}" for name, label in same.items())
            wanted = " and ".join(str(getattr(messages, name)[at]) for name in same)
            offset = int(messages.commit_log_offset[at])
            text = f"the entry has {actual}, but the record at offset {offset} has {wanted}"
            mended = not self._state.is_known(int(messages.store_time[at]))
            queue_offset = int(_extents(entries[at : at + 1], numbers[at : at + 1])[0][0])
            place = self._files.place(int(numbers[at]))
            queue = (*self._survey.name, queue_offset)
            self._findings.add(
                AuditRule.QUEUE_ENTRY_MISMATCH, *place, text, mended=mended, queue=queue, physical_offset=offset
            )
        if self._kind == CONSUME_QUEUE:
            self._order(messages)
        self._settled.append(numbers)

    def _order(self, messages: QueueMessages) -> None:
        """Compare the queue offsets with the order of the log."""
        offsets = messages.commit_log_offset
        queue_offsets = messages.msg_base_offset
        last = self._last[0] if self._last is not None else -1
        before = np.concatenate(([last], queue_offsets[:-1]))
        for at in np.flatnonzero(queue_offsets <= before).tolist():
            add_order(self._findings, self._files, int(queue_offsets[at]), int(before[at]), int(offsets[at]))
        if self._first is None:
            self._first = int(queue_offsets[0]), int(offsets[0])
        self._last = int(queue_offsets[-1]), int(offsets[-1])

    def evidence(self) -> QueueEvidence:
        """Return the evidence about the queue."""
        numbers = np.sort(np.concatenate([np.empty(0, np.int64), *self._settled]))
        return QueueEvidence(runs_of(numbers), self._first, self._last, QueueMessages.joined(self._waiting))


def add_order(findings: Findings, files: QueueFolder, queue_offset: int, before: int, offset: int) -> None:
    """Add the finding on a queue offset that does not rise with the log."""
    text = f"queue offset {queue_offset} follows {before} in the log, at offset {offset}"
    queue = (*queue_name(files.path), queue_offset)
    place = files.place(queue_offset)
    findings.add(AuditRule.QUEUE_OFFSET_ORDER, *place, text, queue=queue, physical_offset=offset)


class QueuesAudit:
    """Match of the messages in one file of the log with the entries of all queues.

    Args:
        folder: the store.
        facts: facts about it.
        surveys: the queues by path.
        number: number of the log's file.
        findings: receives the findings that need no other file.
    """

    def __init__(
        self,
        folder: StoreFolder,
        facts: StoreFacts,
        surveys: "dict[str, QueueSurvey]",
        number: int,
        findings: Findings,
    ) -> None:
        self._folder = folder
        self._facts = facts
        self._surveys = surveys
        self._number = number
        self._findings = findings
        self._audits: dict[str, QueueAudit] = {}
        # Messages of missing queues.
        self._without: dict[str, list[QueueMessages]] = {}

    def take(self, window: WindowMessages) -> None:
        """Compare a window's messages with their entries."""
        for topic, queue_id, members in window.by_queue():
            name = topic.decode("utf-8", "replace")
            if self._facts.wants(name):
                left = members[window.offsets[members] >= self._facts.deleted.get(name, 0)]
                if len(left):
                    self._take_queue(window, name, queue_id, left)

    def _take_queue(self, window: WindowMessages, name: str, queue_id: int, members: Positions) -> None:
        path = f"{BATCH_CONSUME_QUEUE}/{name}/{queue_id}"
        if path not in self._surveys:
            path = f"{CONSUME_QUEUE}/{name}/{queue_id}"
            members = members[~window.are_batches[members]]
            if not len(members):
                return  # like those of a deleted topic
        is_delayed = name == RMQ_SYS_SCHEDULE_TOPIC
        messages = QueueMessages(
            window.offsets[members],
            window.records.total_size[members].astype(np.int64),
            due_times(dict(self._facts.delay_levels), window, members) if is_delayed else window.tags_codes[members],
            window.store_timestamps[members],
            window.queue_offsets[members],
            window.inner_counts(members),
        )
        if path not in self._surveys:
            self._without.setdefault(path, []).append(messages)
            return
        if path not in self._audits:
            survey = self._surveys[path]
            self._audits[path] = QueueAudit(self._folder, survey, self._number, self._facts, self._findings)
        self._audits[path].take(messages)

    def evidence(self) -> dict[str, QueueEvidence]:
        """Return the evidence about each queue by its path."""
        found = {path: audit.evidence() for path, audit in self._audits.items()}
        for path, parts in self._without.items():
            found[path] = QueueEvidence(runs_of(np.empty(0, np.int64)), None, None, QueueMessages.joined(parts))
        return found


def judge_missing_queue(path: str, evidence: Sequence[QueueEvidence], log: CheckedLog, findings: Findings) -> None:
    """Add a finding on the messages of a queue that does not exist."""
    topic, queue_id = queue_name(path)
    offsets = np.concatenate([each.waiting.commit_log_offset for each in evidence])
    offsets = offsets[offsets >= log.begin]
    if len(offsets):
        text = f"{len(offsets)} messages of {topic}/{queue_id}, the first at {offsets[0]} in the CommitLog"
        queue, first = (topic, queue_id, None), int(offsets[0])
        findings.add(AuditRule.QUEUE_MISSING, path, 0, text, queue=queue, physical_offset=first)


class QueueJudge:
    """Judgement of one queue by the evidence of all files of the log.

    Args:
        folder: the store.
        facts: facts about it.
        survey: the queue.
        evidence: the evidence about it, in the order of the log.
        log: the checked log.
        findings: receives the findings.
    """

    def __init__(
        self,
        folder: StoreFolder,
        facts: StoreFacts,
        survey: QueueSurvey,
        evidence: Sequence[QueueEvidence],
        log: CheckedLog,
        findings: Findings,
    ) -> None:
        self._folder = folder
        self._facts = facts
        self._survey = survey
        self._files = QueueFolder(folder, survey.path)
        self._evidence = evidence
        self._log = log
        self._findings = findings
        settled = np.concatenate([np.empty((0, 2), np.int64), *(each.settled for each in evidence)])
        self._settled = settled[np.argsort(settled[:, 0], kind="stable")]
        waiting = QueueMessages.joined([each.waiting for each in evidence])
        self._waiting = waiting.where(waiting.commit_log_offset >= log.begin)
        lasts = [each.last for each in evidence if each.last is not None]
        # Queue offset of the last message that has its entry.
        self._last = lasts[-1][0] if lasts else -1

    def judge(self) -> tuple[UnqueuedMessages, Positions]:
        """Add findings on the entries; return the messages without one, and where wrong entries lead."""
        self._check_order()
        # By queue offset: number and fields of the entry.
        astray: dict[int, tuple[int, np.void]] = {}
        is_batch, before = self._survey.path.startswith(BATCH_CONSUME_QUEUE), None
        expiring = _ExpiringFiles(self._facts, self._log)
        unread = _Unread(expiring, self._facts.offsets.get(self._survey.name, ()))
        for start, entries in _chunks(self._files, 0, self._survey.end):
            is_open = ~in_runs(self._settled, start, len(entries))
            numbers = np.arange(start, start + len(entries))
            bases, counts = _extents(entries, numbers)
            if is_batch:
                before = self._check_batches(entries, numbers, before)
            else:
                self._check_places(numbers[is_open & (entries["size"] == 0)])
            unread.take(entries, bases, counts)
            bad = np.flatnonzero(is_open & _is_real(entries))
            offsets = entries["commit_log_offset"][bad].astype(np.int64)
            is_wrong = ((offsets < 0) | (offsets >= self._log.begin)) & ~self._log.is_damaged(offsets)
            astray |= {int(bases[at]): (start + at, entries[at]) for at in bad[is_wrong].tolist()}
        for queue_offset, (number, entry) in astray.items():
            self._add_astray(queue_offset, number, entry)
        unread.add_to(self._findings, self._survey)
        # In a ConsumeQueue the place of a wrong entry is that of the message that it should lead to.
        own = np.fromiter(() if is_batch else astray, np.int64)
        alone = self._waiting.where(~np.isin(self._waiting.msg_base_offset, own))
        leads = np.array([entry["commit_log_offset"] for _, entry in astray.values()], np.int64)
        taken = np.array([not is_batch and self._is_settled(at) for at in alone.msg_base_offset.tolist()], np.bool_)
        columns = alone.commit_log_offset, alone.msg_base_offset, alone.store_time
        return UnqueuedMessages(self._survey.path, max(self._survey.end - 1, 0), *columns, taken), leads

    def _add(
        self, rule: AuditRule, queue_offset: int, number: int, text: str, *, mended: bool, offset: int | None = None
    ) -> None:
        place, queue = self._files.place(number), (*self._survey.name, queue_offset)
        self._findings.add(rule, *place, text, mended=mended, queue=queue, physical_offset=offset)

    def _check_order(self) -> None:
        """Compare the first message in each file of the log with the last one in the files before it."""
        last = -1
        for each in self._evidence:
            if each.first is not None and each.last is not None:
                if each.first[0] <= last:
                    add_order(self._findings, self._files, each.first[0], last, each.first[1])
                last = each.last[0]

    def _check_places(self, places: Positions) -> None:
        """Add findings on places of a ConsumeQueue without an entry, between others, whose message is missing too."""
        places = np.setdiff1d(places, self._waiting.msg_base_offset)
        for first, end in runs_of(places).tolist():
            self._add_hole(first, end, first)

    def _add_hole(self, first: int, end: int, number: int) -> None:
        upto = f" to {end - 1}" if end > first + 1 else ""
        # After an unclean stop the queue may be ahead of a log that was truncated.
        mended = self._facts.state.unclean and first > self._last
        self._add(AuditRule.QUEUE_OFFSET_MISSING, first, number, f"neither message nor entry{upto}", mended=mended)

    def _check_batches(self, entries: Entries, numbers: Positions, before: Entries | None) -> Entries | None:
        """Compare each entry of a BatchConsumeQueue with the one before it; return the last entry.

        An entry that only says where the queue continues ends a range of offsets that were used: no gap is there.
        """
        written = np.flatnonzero(entries["size"])
        numbers, entries = numbers[written], entries[written]
        if not len(entries):
            return before
        is_first = before is None
        line = entries if before is None else np.concatenate([before, entries])
        bases, counts = _extents(line, np.arange(len(line)))
        ends, is_real = bases + counts, _is_real(line)
        for at in range(1, len(line)) if len(line) > 1 else ():
            base, end, reached = int(bases[at]), int(ends[at]), int(ends[at - 1])
            number = int(numbers[at if is_first else at - 1])
            if base < reached or end <= base:
                text = f"{base} to {end} follows {bases[at - 1]} to {reached}"
                self._add(AuditRule.QUEUE_OFFSET_ORDER, base, number, text, mended=False)
            elif base > reached and is_real[at]:
                self._check_gap(reached, base, number)
        return entries[-1:]

    def _check_gap(self, low: int, high: int, number: int) -> None:
        """Add findings on the queue offsets between two entries that no waiting record has either."""
        waiting = self._waiting
        for base, count in sorted(zip(waiting.msg_base_offset.tolist(), waiting.batch_size.tolist(), strict=True)):
            if low < base < high:
                self._add_hole(low, base, number)
            if base < high:
                low = max(low, base + count)
        if low < high:
            self._add_hole(low, high, number)

    def _add_astray(self, queue_offset: int, number: int, entry: np.void) -> None:
        offset = int(entry["commit_log_offset"])
        beyond = offset >= self._log.end
        times = self._waiting.where(self._waiting.msg_base_offset == queue_offset).store_time.tolist()
        if self._survey.path.startswith(BATCH_CONSUME_QUEUE):
            times = [int(entry["store_time"])]
        known = all(map(self._facts.state.is_known, times))
        mended = self._facts.state.unclean and (beyond or not known)
        if beyond:
            rule, text = (
                AuditRule.QUEUE_ENTRY_BEYOND_LOG,
                f"the entry leads to {offset}, but the log ends at {self._log.end}",
            )
        elif there := read_record(self._folder, self._facts.segments, offset):
            place = f"{there.topic}/{there.queue_id} queue offset {there.queue_offset}"
            rule, text = AuditRule.QUEUE_ENTRY_MISMATCH, f"the record at {offset} is {place}"
        else:
            rule, text = AuditRule.QUEUE_ENTRY_UNREADABLE, f"no record begins at {offset}"
        self._add(rule, queue_offset, number, text, mended=mended, offset=offset)

    def _is_settled(self, number: int) -> bool:
        at = int(np.searchsorted(self._settled[:, 0], number, side="right")) - 1
        return at >= 0 and number < int(self._settled[at, 1])


def judge_unqueued(
    folder: StoreFolder, facts: StoreFacts, unqueued: UnqueuedMessages, leads: Positions, findings: Findings
) -> None:
    """Add findings on messages without an entry, except those to which an entry of any queue leads by mistake."""
    left, files = ~np.isin(unqueued.offsets, leads), QueueFolder(folder, unqueued.path)
    rows = zip(*(column[left].tolist() for column in unqueued[2:]), strict=True)
    for offset, queue_offset, stored, taken in rows:
        rule, text, mended = AuditRule.MESSAGE_NOT_QUEUED, f"the message at {offset}", not facts.state.is_known(stored)
        if taken:
            rule, text, mended = AuditRule.QUEUE_OFFSET_REPEATED, f"{text} has the same queue offset", False
        is_batch = unqueued.path.startswith(BATCH_CONSUME_QUEUE)
        place = files.place(unqueued.last if is_batch else max(queue_offset, 0))
        queue = (*queue_name(unqueued.path), max(queue_offset, 0))
        findings.add(rule, *place, text, mended=mended, queue=queue, physical_offset=offset)


class _ExpiringFiles:
    """Files of the log that are about to expire (CleanCommitLogService, fileReservedTime).

    A file is removed as a whole, ``reserved_hours`` after its last message was stored; the file that is written is
    never removed. A broker that lacks disk space removes files earlier.
    """

    def __init__(self, facts: StoreFacts, log: CheckedLog) -> None:
        self.facts = facts
        self.removed: dict[int, int] = {}
        if (expiry := facts.options.expiry) is not None:
            ends = {number: newest + expiry.reserved_hours * _HOUR_MS for number, newest in log.newest_ms.items()}
            soon = expiry.now_ms + expiry.within_hours * _HOUR_MS
            last = len(facts.with_data) - 1
            self.removed = {number: end for number, end in ends.items() if end <= soon and number != last}


class _Unread:
    """Messages in expiring files that groups have not consumed, counted by group."""

    def __init__(self, files: _ExpiringFiles, consumers: Sequence[tuple[str, int]]) -> None:
        self._files = files
        self._consumers = consumers if files.removed else ()
        # By group: its offset, messages, first queue offset, first physical offset, time of the first removal.
        self._found: dict[str, tuple[int, int, int, int, int]] = {}

    def take(self, entries: Entries, bases: Positions, counts: Positions) -> None:
        """Count the messages of consecutive entries."""
        if not self._consumers:
            return
        facts, removed = self._files.facts, self._files.removed
        real = np.flatnonzero(_is_real(entries) & (entries["commit_log_offset"] >= facts.log_begin))
        offsets = entries["commit_log_offset"][real].astype(np.int64)
        segments = facts.segments_of(offsets)
        chosen = np.isin(segments, list(removed))
        offsets, segments, bases = offsets[chosen], segments[chosen], bases[real][chosen]
        # Damaged entries may have any offset; a sum that overflows is below each group's.
        ends = bases + np.maximum(counts[real][chosen], 0)
        for group, at in self._consumers:
            behind = np.flatnonzero(ends > at)
            if not len(behind):
                continue
            starts = np.maximum(bases[behind], at)
            due = min(removed[number] for number in np.unique(segments[behind]).tolist())
            count, first, place = int((ends[behind] - starts).sum()), int(starts.min()), int(offsets[behind].min())
            if (known := self._found.get(group)) is not None:
                count, first = count + known[1], min(first, known[2])
                place, due = min(place, known[3]), min(due, known[4])
            self._found[group] = at, count, first, place, due

    def add_to(self, findings: Findings, survey: QueueSurvey) -> None:
        """Add a finding for each group."""
        for group, (at, count, first, place, due) in self._found.items():
            text = f"group {group} is at {at}: {count} messages from queue offset {first} on expire at {due}"
            queue = (*survey.name, first)
            findings.add(
                AuditRule.UNCONSUMED_EXPIRING,
                survey.path,
                0,
                f"{text} (ms since 1970)",
                queue=queue,
                physical_offset=place,
            )
