"""Check of the queues against the messages of the CommitLog.

Messages come window by window, in the order of the log. A message is matched at once if the entry with its queue offset
leads to it. The others wait to the end: only then is it certain that an entry leads to a wrong place, that a queue
offset was used twice, or that an entry is missing.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.log_audit import LogLookup
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.consume_queue_layout import RETIRED
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.file_rules import check_queue_files
from rocketbroker.codec.storefile.queue_files import Entries, QueueFiles, is_entry
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.store_file import offset_files, offset_to_file_name
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages, due_times
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile

# 20 MB of a ConsumeQueue.
_AT_ONCE = 1 << 20


class QueueFolder(QueueFiles):
    """Entries in ``consumequeue/<topic>/<queueId>``, or in a folder of ``batchconsumequeue``.

    Args:
        directory: the folder.
        layout: see ``QueueFiles``.
    """

    def __init__(self, directory: Path, layout: np.dtype[Any]) -> None:
        sizes = {path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()}
        files = [file for file in offset_files(sizes, str(directory)) if file.size]
        super().__init__(files, open_local, layout)
        self.directory = directory

    def place(self, number: int) -> tuple[Path, int]:
        """Return file and position of an entry."""
        at = number * self.layout.itemsize
        file_size = self.file_size
        position = at % file_size if file_size else at
        return self.directory / offset_to_file_name(at - position), position

    def chunks(self, start: int = 0) -> Iterator[tuple[int, Entries]]:
        """Yield all entries with room in the files from a number on, in chunks with the number of their first entry."""
        for begin in range(max(self.first, start), self.end, _AT_ONCE):
            yield begin, self.read(begin, min(begin + _AT_ONCE, self.end))


def open_local(path: str) -> LocalFile:
    """Open a local file."""
    return LocalFile(path, partial(_unreadable, path))


def _unreadable(path: str, error: OSError) -> StoreError:
    return StoreError(f"cannot read {path}: {error.strerror}")


# Check of one ConsumeQueue against the messages of the CommitLog.
#
# Messages come window by window, in the order of the log. A message is matched at once if the entry with its queue
# offset leads to it. The others wait to the end: only then is it certain that an entry leads to a wrong place, that a
# queue offset was used twice, or that an entry is missing.

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


# Check of one BatchConsumeQueue against the records of the CommitLog.
#
# Records come window by window in the order of the log, and so do entries: each is looked up by its place in the log.
# Entries without a record, and records without an entry, are reported at the end.

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


# Their entries lead to records of other topics (multi-dispatch).
_LITE_PREFIX = "%LMQ%"


class QueuesAudit:
    """Check of the queues of a store.

    Args:
        directories: ``consumequeue`` and ``batchconsumequeue``.
        log_begin: physical offset of the first byte of the log.
        state: state in which the last broker left the store.
        findings: receives the findings.
        delay_levels: ms by level; entries of SCHEDULE_TOPIC_XXXX have the time of delivery as tags code.
        deleted_before: by topic, the physical offset before which its messages were deleted.
        wanted: returns true if a topic is to check.
    """

    def __init__(
        self,
        directories: tuple[Path, Path],
        log_begin: int,
        state: StoreState,
        findings: Findings,
        delay_levels: dict[int, int],
        *,
        deleted_before: Mapping[str, int],
        wanted: Callable[[str], bool],
    ) -> None:
        self._directory, batch_directory = directories
        self._findings = findings
        self._levels = delay_levels
        self._deleted_before = deleted_before
        self._wanted = wanted
        self.queues = {
            (topic, queue_id): QueueAudit(folder, log_begin, state, findings)
            for topic, queue_id, folder in queue_folders(self._directory)
            if wanted(topic)
        }
        self.batch_queues = {
            (topic, queue_id): BatchQueueAudit(folder, log_begin, state, findings)
            for topic, queue_id, folder in queue_folders(batch_directory)
            if wanted(topic)
        }
        # Messages of missing queues: their number, and the offset of the first.
        self._without: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def queued_end(self) -> int:
        """Physical offset after the last message that any queue knows."""
        ends = [queue.queued_end for queue in self.queues.values()]
        return max(ends + [queue.queued_end for queue in self.batch_queues.values()], default=0)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Queue offset after the last message of each non-empty queue, by topic and queue number."""
        ends = {name: queue.end for name, queue in self.queues.items()}
        ends |= {name: queue.end for name, queue in self.batch_queues.items()}
        return {name: end for name, end in ends.items() if end}

    def take(self, window: WindowMessages) -> None:
        """Compare a window's messages with their entries."""
        for topic, queue_id, members in window.by_queue():
            name = topic.decode("utf-8", "replace")
            if self._wanted(name):
                left = members[window.offsets[members] >= self._deleted_before.get(name, 0)]
                if len(left):
                    self._take_queue(window, name, queue_id, left)

    def _take_queue(self, window: WindowMessages, name: str, queue_id: int, members: Positions) -> None:
        if (batch_queue := self.batch_queues.get((name, queue_id))) is not None:
            batch_queue.take(_batch_records(window, members))
            return
        members = members[~window.are_batches[members]]
        if not len(members):
            return  # like those of a deleted topic
        queue = self.queues.get((name, queue_id))
        if queue is None:
            count, first = self._without.get((name, queue_id), (0, int(window.offsets[members[0]])))
            self._without[name, queue_id] = count + len(members), first
            return
        queue.take(
            QueueMessages(
                window.offsets[members],
                window.queue_offsets[members],
                window.records.total_size[members],
                self._tags_codes(window, name, members),
                window.store_timestamps[members],
            )
        )

    def _tags_codes(self, window: WindowMessages, topic: str, members: Positions) -> Positions:
        if topic == RMQ_SYS_SCHEDULE_TOPIC:
            return due_times(self._levels, window, members)
        return window.tags_codes[members]

    def finish(self, log: LogLookup) -> None:
        """Add the findings that are certain only after all messages were seen."""
        led_to: set[int] = set()
        for queue in self.queues.values():
            led_to |= queue.find_astray(log)
        for queue in self.queues.values():
            queue.find_unqueued(led_to)
        for batch_queue in self.batch_queues.values():
            batch_queue.finish(log)
        for (topic, queue_id), (count, first) in self._without.items():
            path = self._directory / topic / str(queue_id)
            text = f"{count} messages of {topic}/{queue_id}, the first at {first} in the CommitLog"
            self._findings.add(AuditRule.QUEUE_MISSING, path, 0, text)


def _batch_records(window: WindowMessages, members: Positions) -> BatchRecords:
    return BatchRecords(
        window.offsets[members],
        window.records.total_size[members].astype(np.int64),
        window.tags_codes[members],
        window.store_timestamps[members],
        window.queue_offsets[members],
        window.inner_counts(members),
    )


def queue_folders(directory: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield topic, number and folder of each queue of ``queue_topics``."""
    for topic in queue_topics(directory):
        for queue in sorted(p for p in topic.iterdir() if p.is_dir() and p.name.isdigit()):
            yield topic.name, int(queue.name), queue


def queue_topics(directory: Path) -> list[Path]:
    """Return the folders of topics in ``consumequeue`` by name, without deleted topics and LMQs."""
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if path.is_dir() and not RETIRED.search(path.name) and not path.name.startswith(_LITE_PREFIX)
    )
