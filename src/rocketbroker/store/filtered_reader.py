"""Reads of one queue by a filter on properties, which looks into the records (DefaultMessageStore.getMessage).

One read looks at ``maxFilterMessageSize`` bytes of the queue at the most. What this process stored a short while ago is
looked at where it is mapped. The rest may come from the disk: the places of as many messages as the loop may read are
given to ``CheckedReader``, which asks the filter once it has them.
"""

from collections.abc import Sequence
from itertools import groupby

from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.message.record_properties import record_properties
from rocketbroker.store.checked_reader import MOST_ON_LOOP, CheckedReader
from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages, Wanted
from rocketbroker.store.message_filter import MessageFilter
from rocketbroker.store.queue_reader import QueueReader, outside

Entry = tuple[int, int, int]


class FilteredReader:
    """Answers pulls with a filter.

    Args:
        commit_log: where the messages lie.
        reader: takes messages within the limits, and knows these.
        checked_reader: for messages that may come from the disk.
    """

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self._checked_reader = checked_reader

    def read(
        self, queue: ConsumeQueue, offset: int, max_msgs: int, max_bytes: int, message_filter: MessageFilter
    ) -> GetMessageResult:
        """As ``QueueReader.read``, of the messages that the filter wants."""
        if not queue.min_offset <= offset < queue.max_offset:
            return outside(queue, offset)
        ends = queue.min_offset, queue.max_offset
        result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, *ends, [])
        wanted = Wanted(message_filter, max_msgs, max_bytes)
        if offset < queue.trusted_from:
            self._collect_unchecked(queue, queue.trusted_from, result, wanted)
        elif not self._collect_new(queue, result, wanted):
            self._collect_unchecked(queue, queue.max_offset, result, wanted)
        if result.message_count:
            result.status = GetMessageStatus.FOUND
        elif result.next_begin_offset == offset:
            # The rest of the file has no entries: what follows is in the next one.
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
        return result

    def _most(self, wanted: Wanted) -> int:
        return max(self._reader.scan_limit(), wanted.max_msgs)

    def _collect_new(self, queue: ConsumeQueue, result: GetMessageResult, wanted: Wanted) -> bool:
        """Take messages that this process stored a short while ago; false when they lie further back."""
        entries = list(queue.entries(result.next_begin_offset, self._most(wanted)))
        if entries and not self._reader.is_in_memory(entries[0][0]):
            return False
        matched = wanted.message_filter.is_matched_by_commit_log(self._properties(queue, entries))
        # In place of its tags code each entry bears whether its message is wanted.
        marked = ((place, size, match) for (place, size, _), match in zip(entries, matched, strict=True))
        self._reader.collect(marked, result, wanted.max_msgs, wanted.max_bytes, bool)
        return True

    def _properties(self, queue: ConsumeQueue, entries: Sequence[Entry]) -> list[bytes]:
        found: list[bytes] = []
        topic_length = len(queue.topic_block)
        log = self._commit_log
        size, minimum = log.queue.file_size, log.min_offset
        for number, of_file in groupby(entries, lambda entry: (entry[0] - minimum) // size):
            start = minimum + number * size
            file = log.queue.find(start)
            assert file is not None, "what is in memory is not removed"
            found += record_properties(file.buffer, [(at - start, length) for at, length, _ in of_file], topic_length)
        return found

    def _collect_unchecked(self, queue: ConsumeQueue, end: int, result: GetMessageResult, wanted: Wanted) -> None:
        """Take the places of messages to look at before queue offset ``end``, as many as the loop may read."""
        expected: list[ExpectedRecord] = []
        ranges = result.ranges
        result.unchecked = UncheckedMessages(queue, None, expected, wanted)
        limit = min(self._most(wanted), end - result.next_begin_offset)
        entries = self._checked_reader.entries(queue, result.next_begin_offset, limit, limit)
        log_min = self._commit_log.min_offset
        total, last_end = 0, -1
        for number, (place, size, tags_code) in enumerate(entries, result.next_begin_offset):
            if place < log_min:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif expected and total + size > MOST_ON_LOOP:
                break
            else:
                if place == last_end:
                    ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
                else:
                    ranges.append((place, size))
                expected.append((number, place, size, tags_code))
                last_end, total = place + size, total + size
            result.next_begin_offset = number + 1
        result.message_count, result.total_size = len(expected), total
        if expected:
            in_memory = self._checked_reader.is_cached(*expected[0][1:3])
            limits = self._reader.limits(wanted.max_msgs, wanted.max_bytes, in_memory=in_memory)
            wanted.max_msgs, wanted.max_bytes = limits
