"""Reads of one queue by a filter on properties, which looks into the records (DefaultMessageStore.getMessage).

One read looks at ``maxFilterMessageSize`` bytes of the queue at the most. What this process stored a short while ago is
looked at where it is mapped. The rest may come from the disk: the places of as many messages as the loop may read are
given to ``CheckedReader``, which asks the filter once it has them.
"""

from bisect import bisect_left
from itertools import compress

from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.message.record_properties import MANY, Numbers, record_properties
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import MOST_ON_LOOP, CheckedReader
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages, Wanted
from rocketbroker.store.read.message_filter import MessageFilter
from rocketbroker.store.read.queue_reader import QueueReader, outside

# Places of messages in the CommitLog, ascending, and their sizes.
Places = tuple[Numbers, Numbers]


class FilteredReader:
    """Answers pulls with a filter.

    Args:
        commit_log: where the messages lie.
        reader: knows the limits.
        checked_reader: for messages that may come from the disk.
    """

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self._checked_reader = checked_reader

    def read(
        self, queue: ConsumeQueueInterface, offset: int, max_msgs: int, max_bytes: int, message_filter: MessageFilter
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

    def _collect_new(self, queue: ConsumeQueueInterface, result: GetMessageResult, wanted: Wanted) -> bool:
        """Take messages that this process stored a short while ago; false when they lie further back."""
        offset = result.next_begin_offset
        places, sizes = _places(queue, offset, self._most(wanted))
        if len(places) and not self._reader.is_in_memory(int(places[0])):
            return False
        matched = self._matched(queue, (places, sizes), wanted.message_filter)
        max_msgs, max_bytes = self._reader.limits(wanted.max_msgs, wanted.max_bytes, in_memory=True)
        result.next_begin_offset = offset + len(places)
        for number in compress(range(len(places)), matched):
            size = int(sizes[number])
            full = result.message_count >= max_msgs or result.total_size + size > max_bytes
            if full and result.message_count:
                result.next_begin_offset = offset + number
                break
            _add_range(result.ranges, int(places[number]), size)
            result.message_count += 1
            result.total_size += size
        return True

    def _matched(self, queue: ConsumeQueueInterface, found: Places, message_filter: MessageFilter) -> list[bool]:
        """Which messages the filter wants; they lie in one file, or in a few that follow each other."""
        places, sizes = found
        log, topic_length = self._commit_log, len(queue.topic_block)
        matched: list[bool] = []
        while len(matched) < len(places):
            done = len(matched)
            file = log.queue.find(int(places[done]))
            assert file is not None, "what is in memory is not removed"
            start = file.file_from_offset
            end = bisect_left(places, start + file.file_size, done)
            properties = record_properties(file.buffer, places[done:end], sizes[done:end], topic_length, start)
            matched += message_filter.is_matched_by_commit_log(properties)
        return matched

    def _collect_unchecked(
        self, queue: ConsumeQueueInterface, end: int, result: GetMessageResult, wanted: Wanted
    ) -> None:
        """Take the places of messages to look at before queue offset ``end``, as many as the loop may read."""
        expected: list[ExpectedRecord] = []
        result.unchecked = UncheckedMessages(queue, None, expected, wanted)
        limit = min(self._most(wanted), end - result.next_begin_offset)
        entries = self._checked_reader.entries(queue, result.next_begin_offset, limit, limit)
        log_min = self._commit_log.min_offset
        total = 0
        for number, (place, size, tags_code) in enumerate(entries, result.next_begin_offset):
            if place < log_min:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif expected and total + size > MOST_ON_LOOP:
                break
            else:
                _add_range(result.ranges, place, size)
                expected.append((number, place, size, tags_code))
                total += size
            result.next_begin_offset = number + 1
        result.message_count, result.total_size = len(expected), total
        if expected:
            in_memory = self._checked_reader.is_cached(*expected[0][1:3])
            limits = self._reader.limits(wanted.max_msgs, wanted.max_bytes, in_memory=in_memory)
            wanted.max_msgs, wanted.max_bytes = limits


def _places(queue: ConsumeQueueInterface, offset: int, limit: int) -> Places:
    """Where the messages from a queue offset on lie: as numpy arrays when they are ``MANY``."""
    if min(limit, queue.max_offset - offset) < MANY:
        entries = list(queue.entries(offset, limit))
        return [entry[0] for entry in entries], [entry[1] for entry in entries]
    import numpy as np

    from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

    columns = np.frombuffer(queue.entry_bytes(offset, limit), CONSUME_QUEUE_ENTRY)
    return columns["commit_log_offset"].astype(np.int64), columns["size"].astype(np.int64)


def _add_range(ranges: list[tuple[int, int]], place: int, size: int) -> None:
    """One more message; neighbours are joined."""
    if ranges and ranges[-1][0] + ranges[-1][1] == place:
        ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
    else:
        ranges.append((place, size))
