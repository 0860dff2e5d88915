"""Reads of queues whose records may be batches (DefaultMessageStore.getMessage of a BatchConsumeQueue).

A batch is given whole or not at all, and also to a read that begins amid it: clients take it apart. Filters look at the
record, not at the messages in it, as RocketMQ's do. All records are checked before they are given out.
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
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages, Wanted
from rocketbroker.store.read.message_filter import MessageFilter
from rocketbroker.store.read.queue_reader import QueueReader, outside


class BatchQueueReader:
    """Answers pulls.

    Args:
        commit_log: where the records lie.
        reader: knows the limits.
        checked_reader: checks the records.
    """

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self._checked_reader = checked_reader

    def read(
        self,
        queue: BatchConsumeQueue,
        offset: int,
        max_msgs: int,
        max_bytes: int,
        matches: Callable[[int], bool] | None,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """As ``QueueReader.read``; of records as many as have ``max_msgs`` messages, and at least one."""
        if not queue.min_offset <= offset < queue.max_offset:
            return outside(queue, offset)
        result = GetMessageResult(
            GetMessageStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset, in_memory=False
        )
        wanted = None if message_filter is None else Wanted(message_filter, max_msgs, max_bytes)
        expected: list[ExpectedRecord] = []
        result.unchecked = UncheckedMessages(queue, matches, expected, wanted)
        if matches is not None:
            matches = self._checked_reader.possible_matches(queue, matches)
        # A filter chooses later, among as many as the loop may read.
        most, room = sys.maxsize, MOST_ON_LOOP
        messages = 0
        for entry in self._candidates(queue, result, matches):
            if not expected:
                in_memory = result.in_memory = self._checked_reader.is_cached(entry.physical_offset, entry.size)
                max_msgs, max_bytes = self._reader.limits(max_msgs, max_bytes, in_memory=in_memory)
                if wanted is None:
                    most, room = max_msgs, max_bytes
            elif messages + entry.messages > most or result.total_size + entry.size > room:
                break
            result.next_begin_offset = entry.end
            result.ranges.append((entry.physical_offset, entry.size))
            expected.append((entry.base, *entry[:3]))
            result.total_size += entry.size
            messages += entry.messages
        if wanted is not None:
            wanted.max_msgs, wanted.max_bytes = max_msgs, max_bytes
        result.message_count = len(expected)
        if expected:
            result.status = GetMessageStatus.FOUND
        elif result.next_begin_offset == offset:
            # The offsets up to the end were used, but the log has lost what had them.
            result.status, result.next_begin_offset = GetMessageStatus.OFFSET_FOUND_NULL, queue.max_offset
        return result

    def _candidates(
        self, queue: BatchConsumeQueue, result: GetMessageResult, matches: Callable[[int], bool] | None
    ) -> Iterator[BatchEntry]:
        """Entries that may be wanted and may lead to a record; ``result`` goes on behind the others."""
        limit = max(self._reader.scan_limit() * CQ_STORE_UNIT_SIZE // BATCH_CQ_STORE_UNIT_SIZE, 1)
        begin = self._commit_log.min_offset
        entries = chain(queue.batches(result.next_begin_offset, sys.maxsize), [None])
        for entry, follower in pairwise(entries):
            assert entry is not None
            if entry.end <= result.next_begin_offset:
                continue  # one that is damaged led halving before what was looked for
            upto = queue.max_offset if follower is None else follower.base
            if not entry.base < entry.end <= upto and not queue.agrees(entry):
                self._report(queue, entry, f"it names {entry.messages} messages, and what follows it is at {upto}")
                continue
            if entry.begin_in_log < begin and not result.ranges:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif self._may_be_there(queue, entry):
                if matches is None or matches(entry.tags_code):
                    yield entry
                    continue
            elif entry.size != MIN_RECORD_SIZE:
                what = f"it names {entry.size} bytes at {entry.physical_offset}, where no record of the queue can be"
                self._report(queue, entry, what)
            result.next_begin_offset = entry.end
            limit -= 1
            if not limit:
                return

    def _report(self, queue: BatchConsumeQueue, entry: BatchEntry, what: str) -> None:
        self._checked_reader.report_entry(queue, entry.base, what)

    def _may_be_there(self, queue: BatchConsumeQueue, entry: BatchEntry) -> bool:
        """Whether a record of the queue can lie where an entry says."""
        log = self._commit_log
        offset, size = entry.physical_offset, entry.size
        if offset < log.min_offset:
            return False
        inside = offset + size <= log.max_offset and (offset - log.min_offset) % log.queue.file_size + size <= (
            log.queue.file_size
        )
        return inside and queue.record_check.least_size <= size and log.may_be_record(offset, size)
