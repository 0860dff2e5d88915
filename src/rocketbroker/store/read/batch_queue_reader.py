"""Selection in queues whose records may be batches (DefaultMessageStore.getMessage of a BatchConsumeQueue).

A batch is returned as a whole or not at all, even to a read that begins inside it; clients split it. As in RocketMQ,
filters see the record, not the messages in it. All records are checked before they are returned.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue, BatchEntry
from rocketbroker.store.read.checked_reader import MOST_ON_LOOP, CheckedReader
from rocketbroker.store.read.get_message import (
    GetMessageRequest,
    GetMessageStatus,
    PropertyFilter,
    Selection,
    UncheckedMessages,
    selected,
)
from rocketbroker.store.read.queue_reader import QueueReader


class BatchQueueReader:
    """Selects records.

    Args:
        commit_log: the records.
        reader: source of the limits.
        checked_reader: check of the records.
    """

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self._checked_reader = checked_reader

    def select(self, queue: BatchConsumeQueue, request: GetMessageRequest) -> Selection:
        """Select records with up to ``max_msgs`` messages, at least one record, from an offset that the queue has."""
        matches, message_filter = request.matches, request.message_filter
        if matches is not None:
            matches = self._checked_reader.possible_matches(queue, matches)
        max_msgs, max_bytes = request.max_msgs, request.max_bytes
        # A filter on properties selects later, among as many as the event loop may read.
        most, room = sys.maxsize, MOST_ON_LOOP
        scan = max(self._reader.scan_limit(max_msgs) * CQ_STORE_UNIT_SIZE // BATCH_CQ_STORE_UNIT_SIZE, 1)
        next_offset = request.offset
        ranges: list[tuple[int, int]] = []
        expected: list[ExpectedRecord] = []
        messages = total = 0
        was_removed = False
        for entry in self._agreeing(queue, request.offset):
            is_removed = not expected and entry.begin_in_log < self._commit_log.min_offset
            if is_removed or not self._is_candidate(queue, entry, matches):
                was_removed = was_removed or is_removed
                next_offset = entry.end
                scan -= 1
                if not scan:
                    break
                continue
            if not expected:
                in_memory = self._checked_reader.is_cached(entry.physical_offset, entry.size)
                max_msgs, max_bytes = self._reader.limits(max_msgs, max_bytes, in_memory=in_memory)
                if message_filter is None:
                    most, room = max_msgs, max_bytes
            elif messages + entry.messages > most or total + entry.size > room:
                break
            next_offset = entry.end
            ranges.append((entry.physical_offset, entry.size))
            expected.append((entry.base, *entry[:3]))
            total += entry.size
            messages += entry.messages
        if next_offset == request.offset:
            # The queue has offsets up to its end, but the log has lost their messages.
            return Selection(GetMessageStatus.OFFSET_FOUND_NULL, queue.max_offset)
        chosen_by = None if message_filter is None else PropertyFilter(message_filter, max_msgs, max_bytes)
        unchecked = UncheckedMessages(queue, expected, ranges, total, request.matches, chosen_by)
        found = selected(request, next_offset, ranges, len(expected), was_removed=was_removed)
        return found._replace(unchecked=unchecked)

    def _agreeing(self, queue: BatchConsumeQueue, queue_offset: int) -> Iterator[BatchEntry]:
        """Yield the entries from the one with an offset on, without those that contradict the next entry."""
        reached = queue_offset
        for entry, follower in pairwise(chain(queue.batches(queue_offset, sys.maxsize), [None])):
            assert entry is not None
            if entry.end <= reached:
                continue  # a damaged entry misled the bisection to an earlier one
            upto = queue.max_offset if follower is None else follower.base
            if not entry.base < entry.end <= upto and not queue.agrees(entry):
                self._report(queue, entry, f"it names {entry.messages} messages, but the next offset is {upto}")
                continue
            yield entry
            reached = entry.end

    def _is_candidate(self, queue: BatchConsumeQueue, entry: BatchEntry, matches: Callable[[int], bool] | None) -> bool:
        """Return true if an entry can name a wanted record of the queue."""
        if self._may_be_there(queue, entry):
            return matches is None or matches(entry.tags_code)
        if entry.size != MIN_RECORD_SIZE:
            what = f"it names {entry.size} bytes at {entry.physical_offset}, where the queue cannot have a record"
            self._report(queue, entry, what)
        return False

    def _report(self, queue: BatchConsumeQueue, entry: BatchEntry, what: str) -> None:
        self._checked_reader.report_entry(queue, entry.base, what)

    def _may_be_there(self, queue: BatchConsumeQueue, entry: BatchEntry) -> bool:
        """Return true if a record of the queue can be where an entry says."""
        log = self._commit_log
        offset, size = entry.physical_offset, entry.size
        if offset < log.min_offset:
            return False
        inside = offset + size <= log.max_offset and (offset - log.min_offset) % log.queue.file_size + size <= (
            log.queue.file_size
        )
        return inside and queue.record_check.least_size <= size and log.may_be_record(offset, size)
