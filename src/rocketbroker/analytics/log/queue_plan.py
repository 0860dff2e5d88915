"""Plan to read parts of a commit log through the ConsumeQueues of selected topics instead of walking all of it.

Queues point to all messages of their topics up to the end of dispatch, which happens in log order. The log after that
is walked, and so is the log before the first entry of a queue that has lost its start. Where entries may not have
reached the disk, the log is walked from the offset up to which ``queue_proof.py`` proves the queues complete. Every
entry of the queues is checked before one is used; if any is wrong, all of the log is walked.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from rocketbroker.analytics.columns.decode_report import DecodeReport, UnprovenRange
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, log_window
from rocketbroker.analytics.files.queue_files import known_topics, queue_numbers, queue_topics
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.log.queue_entries import CheckedQueue, EntryRange, QueueEntries, QueueNotWholeError
from rocketbroker.analytics.log.queue_proof import has_all_queues, shown_or_none
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.codec.storefile.record_search import Found, inspect

#: With more entries than this (20 bytes each) the log is walked: checking them would take longer.
MOST_ENTRIES: Final = 5_000_000
# At most this many queues of other topics are read to find the end of dispatch; in a remote store each takes requests.
_OTHERS_LOCAL: Final = 4_096
_OTHERS_REMOTE: Final = 16
# A broker writes queue entries in batches: one queue may be ahead of another by this many bytes of the log.
_DISPATCH_MARGIN: Final = 16 << 20
# Below this share of the log, walking costs less than the proof that queues are complete.
_WORTH_SHOWING: Final = 1 / 8
_NOT_CLOSED: Final = "the store was not stopped cleanly, and its queues are not proven complete"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Physical offsets ``low`` to before ``high`` of one file; ``entries`` point to all selected messages there."""

    low: int
    high: int
    entries: tuple[EntryRange, ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Parts with all selected messages from ``front`` to before ``tail``; the rest of the log must be walked."""

    front: int
    tail: int
    parts: list[QueuePart]


def plan_queues(
    folder: StoreFolder,
    files: Sequence[LogFile],
    selection: Selection,
    bounds: tuple[int, int],
    part_size: int,
    report: DecodeReport,
) -> QueuePlan | None:
    """Plan how to read ``selection`` between the physical offsets ``bounds``; ``None`` to walk all of it.

    A part has about ``part_size`` bytes of messages. ``report`` records ranges that are walked because queues are not
    reliable there.
    """
    if (selection.topics is None and selection.topic_pattern is None) or selection.exact or not files:
        return None
    try:
        return _Planner(folder, files, selection, report).plan(bounds, part_size)
    except QueueNotWholeError as error:
        report.unproven.append(UnprovenRange(folder.root.broker, *bounds, str(error)))
        logger.info("%s: the whole commit log is read: %s", folder.root.shown, error)
        return None


class _Planner:
    def __init__(
        self, folder: StoreFolder, files: Sequence[LogFile], selection: Selection, report: DecodeReport
    ) -> None:
        self._folder = folder
        self._files = files
        self._selection = selection
        self._report = report
        self._has_all = has_all_queues(folder)
        self._log_end = files[-1].base + files[-1].data_end
        self._topics = dict.fromkeys(queue_topics(folder, CONSUME_QUEUE))  # in order, and looked up for each topic
        self._wanted = self._wanted_topics()

    def plan(self, bounds: tuple[int, int], part_size: int) -> QueuePlan | None:
        seen = list(self._chosen())
        if sum(files.capacity for files in seen) > MOST_ENTRIES:
            raise QueueNotWholeError(f"the selected queues have more than {MOST_ENTRIES:,} entries")
        end = self._dispatched(seen) - _DISPATCH_MARGIN if self._has_all else self._log_end
        front, tail = bounds[0], min(bounds[1], end)
        front, queues = self._queues(front)
        if not self._has_all and _is_worth_it(queues, front, tail):
            tail = self._shown(front, tail)
            front, queues = self._queues(front)  # read again: entries that arrived meanwhile are part of the proof
        if not _is_worth_it(queues, front, tail):
            return None
        within = zip(self._files, self._by_file(queues), strict=True)
        parts = [part for file, found in within for part in _parts(found, file, (front, tail), part_size)]
        return QueuePlan(front, tail, parts)

    def _by_file(
        self, queues: list[tuple[CheckedQueue, QueueEntries]]
    ) -> list[list[tuple[CheckedQueue, QueueEntries]]]:
        """Return the queues with entries in each file; asking each queue for each file would take minutes."""
        bases = np.array([file.base for file in self._files])
        found: list[list[tuple[CheckedQueue, QueueEntries]]] = [[] for _ in self._files]
        for queue in queues:
            for number in np.unique(np.searchsorted(bases, queue[1].offsets, "right") - 1):
                found[number].append(queue)
        return found

    def _wanted_topics(self) -> list[str]:
        """Return the selected topics; a pattern selects among those of the store."""
        known = self._selection.topics
        if known is None:  # an LMQ leads to messages of other topics
            known = {topic for topic in known_topics(self._folder) if not topic.startswith(LMQ_PREFIX)}
        return sorted(filter(self._selection.has_topic, known))

    def _queues(self, front: int) -> tuple[int, list[tuple[CheckedQueue, QueueEntries]]]:
        """Return the offset, at least ``front``, from which the chosen queues are complete, and their entries."""
        queues = []
        for files in self._chosen():  # listed again: a broker may have created a file since
            entries = files.whole()
            front = max(front, self._first_known(files, entries))
            queues.append((files, self._selected(files, entries)))
        return front, queues

    def _chosen(self) -> Iterator[CheckedQueue]:
        for topic in self._wanted:
            numbers = self._numbers(topic) if topic in self._topics else []
            if not numbers:
                raise QueueNotWholeError(f"there is no queue of topic {topic}")
            wanted = self._selection.queue_ids
            yield from (
                CheckedQueue(self._folder, topic, number) for number in numbers if wanted is None or number in wanted
            )

    def _numbers(self, topic: str) -> list[int]:
        return queue_numbers(self._folder, CONSUME_QUEUE, topic)

    def _first_known(self, files: CheckedQueue, entries: QueueEntries) -> int:
        """Return the physical offset from which on the queue points to all its messages."""
        begin = self._files[0].base
        if not len(entries):
            raise QueueNotWholeError(f"queue {files.name} has no entry")
        if entries.first == 0 or entries.offsets[0] <= begin:
            return begin
        return int(entries.offsets[0])

    def _selected(self, files: CheckedQueue, entries: QueueEntries) -> QueueEntries:
        """Return the entries that point into the current log and have selected queue offsets."""
        begin, end = int(np.searchsorted(entries.offsets, self._files[0].base)), len(entries)
        low, high = self._selection.offsets_of(files.topic, files.queue_id)
        begin = begin if low is None else max(begin, low - entries.first)
        end = end if high is None else min(end, high - entries.first)
        return entries.part(begin, max(begin, end))

    def _shown(self, front: int, tail: int) -> int:
        """Return the offset, ``tail`` at most, up to which queues have all messages from ``front`` on."""
        worth_it = tail - front >= (self._log_end - self._files[0].base) * _WORTH_SHOWING
        shown = shown_or_none(self._folder, self._files, front) if worth_it else None
        known = front if shown is None else min(max(shown, front), tail)
        if known < tail:
            add = self._report.unproven.append if shown is None else self._report.add_unproven
            add(UnprovenRange(self._folder.root.broker, known, tail, _NOT_CLOSED))
        return known

    def _dispatched(self, chosen: list[CheckedQueue]) -> int:
        """Return the physical offset after a message up to which all messages are in their queues."""
        ends = [newest for files in [*chosen, *self._others()] if (newest := files.newest()) is not None]
        for offset, size in sorted(ends, reverse=True):
            if self._is_record(offset, size):
                return offset + size
        raise QueueNotWholeError("no queue shows the end of dispatch")

    def _others(self) -> Iterator[CheckedQueue]:
        wanted = set(self._wanted)
        left = _OTHERS_LOCAL if self._folder.root.is_local else _OTHERS_REMOTE
        for topic in self._topics:
            if topic not in wanted:
                for number in self._numbers(topic)[:left]:
                    left -= 1
                    try:
                        yield CheckedQueue(self._folder, topic, number)
                    except QueueNotWholeError:
                        continue
            if left <= 0:
                return

    def _is_record(self, offset: int, size: int) -> bool:
        for file in self._files:
            if file.base <= offset < file.base + file.data_end:
                with log_window(file) as window:
                    return inspect(window, offset - file.base) == (Found.RECORD, size)
        return False


def _is_worth_it(queues: list[tuple[CheckedQueue, QueueEntries]], front: int, tail: int) -> bool:
    """Return true if the selected messages are less than half of a part of the log."""
    return front < tail and sum(_bytes(entries, front, tail) for _, entries in queues) * 2 < tail - front


def _bytes(entries: QueueEntries, low: int, high: int) -> int:
    return int(entries.between(low, high).sizes.sum())


def _parts(
    queues: list[tuple[CheckedQueue, QueueEntries]], file: LogFile, bounds: tuple[int, int], part_size: int
) -> Iterator[QueuePart]:
    low, high = max(bounds[0], file.base), min(bounds[1], file.base + file.data_end)
    if low >= high:
        return
    count = -(-sum(_bytes(entries, low, high) for _, entries in queues) // part_size)
    cuts = [low + (high - low) * number // max(count, 1) for number in range(count + 1)]
    for start, stop in pairwise(cuts):
        ranges = []
        for files, entries in queues:
            part = entries.between(start, stop)
            if len(part):
                ranges.append(EntryRange(files.topic, files.queue_id, part.first, part.first + len(part)))
        if ranges:
            yield QueuePart(start, stop, tuple(ranges))
