"""Selection by a filter on properties, which needs the records (DefaultMessageStore.getMessage).

One read examines at most ``maxFilterMessageSize`` bytes of queue entries. The filter sees new messages in the mapped
files. The rest may come from the disk: ``CheckedReader`` gets the places of as many as the event loop may read, and
applies the filter to the sound ones.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress

from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.message.record_properties import MANY, Numbers, record_properties
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import MOST_ON_LOOP, CheckedReader
from rocketbroker.store.read.get_message import (
    GetMessageRequest,
    PropertyFilter,
    Selection,
    UncheckedMessages,
    add_range,
    selected,
)
from rocketbroker.store.read.message_filter import MessageFilter
from rocketbroker.store.read.queue_reader import QueueReader

# CommitLog offsets of messages, ascending, and their sizes.
Places = tuple[Numbers, Numbers]


class FilteredReader:
    """Selects messages by their properties.

    Args:
        commit_log: the records.
        reader: source of the limits.
        checked_reader: check of messages that may come from the disk.
    """

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self._checked_reader = checked_reader

    def select(
        self, queue: ConsumeQueueInterface, request: GetMessageRequest, message_filter: MessageFilter
    ) -> Selection:
        """Select messages from an offset that the queue has."""
        limit = max(self._reader.scan_limit(), request.max_msgs)
        if request.offset < queue.trusted_from:
            return self._select_unchecked(
                queue, request, message_filter, min(limit, queue.trusted_from - request.offset)
            )
        limit = min(limit, queue.max_offset - request.offset)
        places, sizes = _places(queue, request.offset, limit)
        if len(places) and not self._reader.is_in_memory(int(places[0])):
            return self._select_unchecked(queue, request, message_filter, limit)
        return self._select_new(request, (places, sizes), self._matched(queue, (places, sizes), message_filter))

    def _select_new(self, request: GetMessageRequest, found: Places, matched: Sequence[bool]) -> Selection:
        """Select messages that this process stored a short while ago."""
        places, sizes = found
        max_msgs, max_bytes = self._reader.limits(request.max_msgs, request.max_bytes, in_memory=True)
        next_offset = request.offset + len(places)
        ranges: list[tuple[int, int]] = []
        count = total = 0
        for number in compress(range(len(places)), matched):
            size = int(sizes[number])
            if count and (count >= max_msgs or total + size > max_bytes):
                next_offset = request.offset + number
                break
            add_range(ranges, int(places[number]), size)
            count += 1
            total += size
        return selected(request, next_offset, ranges, count, was_removed=False)

    def _matched(self, queue: ConsumeQueueInterface, found: Places, message_filter: MessageFilter) -> list[bool]:
        """Apply the filter to messages in one file, or in a few successive ones."""
        places, sizes = found
        log, topic_length = self._commit_log, len(queue.topic_block)
        matched: list[bool] = []
        while len(matched) < len(places):
            done = len(matched)
            file = log.queue.find(int(places[done]))
            assert file is not None, "messages in memory are not removed"
            start = file.file_from_offset
            end = bisect_left(places, start + file.file_size, done)
            properties = record_properties(file.buffer, places[done:end], sizes[done:end], topic_length, start)
            matched += message_filter.is_matched_by_commit_log(properties)
        return matched

    def _select_unchecked(
        self, queue: ConsumeQueueInterface, request: GetMessageRequest, message_filter: MessageFilter, limit: int
    ) -> Selection:
        """Select messages for the filter to examine, as many as the event loop may read."""
        entries = self._checked_reader.entries(queue, request.offset, limit, limit)
        log_min = self._commit_log.min_offset
        was_removed = False
        ranges: list[tuple[int, int]] = []
        expected: list[ExpectedRecord] = []
        next_offset, total = request.offset, 0
        for number, (place, size, tags_code) in enumerate(entries, request.offset):
            if place < log_min:
                was_removed = True
            elif expected and total + size > MOST_ON_LOOP:
                break
            else:
                add_range(ranges, place, size)
                expected.append((number, place, size, tags_code))
                total += size
            next_offset = number + 1
        selection = selected(request, next_offset, ranges, len(expected), was_removed=was_removed)
        if not expected:
            return selection
        in_memory = self._checked_reader.is_cached(*expected[0][1:3])
        limits = self._reader.limits(request.max_msgs, request.max_bytes, in_memory=in_memory)
        chosen_by = PropertyFilter(message_filter, *limits)
        return selection._replace(unchecked=UncheckedMessages(queue, expected, ranges, total, chosen_by=chosen_by))


def _places(queue: ConsumeQueueInterface, offset: int, limit: int) -> Places:
    """Read the places of messages from a queue offset on, as numpy arrays if they are ``MANY``."""
    if limit < MANY:
        entries = list(queue.entries(offset, limit))
        return [entry[0] for entry in entries], [entry[1] for entry in entries]
    import numpy as np

    from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

    columns = np.frombuffer(queue.entry_bytes(offset, limit), CONSUME_QUEUE_ENTRY)
    return columns["commit_log_offset"].astype(np.int64), columns["size"].astype(np.int64)
