"""Selection by a filter on properties, which needs the records (DefaultMessageStore.getMessage).

A read examines at most ``maxFilterMessageSize`` bytes of queue entries, or several times as many. A quick filter
examines new messages in the mapped files until a turn of the event loop is over. ``CheckedReader`` gets the places of
the others: old messages, which may come from the disk, and all messages for a slow filter. It applies the filter to the
sound ones, at once or on a thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import compress
from time import perf_counter
from typing import Final, NamedTuple

from rocketbroker.codec.message.raw_records import MANY, ExpectedRecord, Numbers, record_properties
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import FILTER_TURN_S, MOST_ON_LOOP, CheckedReader
from rocketbroker.store.read.get_message import (
    GetMessageRequest,
    MessageFilter,
    PropertyFilter,
    Selection,
    UncheckedMessages,
    add_range,
    selected,
)
from rocketbroker.store.read.queue_reader import QueueReader

# A read that scans ahead looks at so many times the messages of another.
_MOST_PASSES: Final = 8
# Fewest messages of a pass: the time of the first one says how many the rest of the turn is enough for.
_FEWEST: Final = 256
# Filters whose last read is known.
_MOST_KNOWN: Final = 256
# CommitLog offsets of messages, ascending, and their sizes.
Places = tuple[Numbers, Numbers]


class _Span(NamedTuple):
    """A file of the log: its offsets and bytes."""

    begin: int
    end: int
    data: memoryview


class _Passes:
    """A filter that looks at new messages, some at a time.

    Attributes:
        matched: true for each matching message, of those examined.
        count: number of those that match.
    """

    def __init__(self, found: Places, spans: list[_Span], topic_length: int, message_filter: MessageFilter) -> None:
        self.found = found
        self._spans = spans
        self._topic_length = topic_length
        self._filter = message_filter
        self.matched: list[bool] = []
        self.count = 0

    @property
    def is_done(self) -> bool:
        """True if all messages have been examined."""
        return len(self.matched) == len(self.found[0])

    def run(self, first: int, limit: int, max_msgs: int) -> None:
        """Apply the filter until enough messages match, or a turn of the event loop is over.

        Args:
            first: number of messages of the first pass, if it is not too few.
            limit: number of messages that a further pass may examine in any case, if it has time.
            max_msgs: number of messages that are enough.
        """
        start = perf_counter()
        end = start + FILTER_TURN_S
        self._look_at(max(first, min(limit, _FEWEST)), lambda: perf_counter() >= end)
        while not self.is_done and self.count < max_msgs and (now := perf_counter()) < end:
            # As many as should hold what is missing, by what matched so far, and as many as there is time for.
            done, missing = len(self.matched), max_msgs - self.count
            wanted = max(limit, done * missing // self.count) if self.count else len(self.found[0])
            in_time = int(done * (end - now) / (now - start))
            if in_time < _FEWEST:
                break
            self._look_at(min(wanted, in_time), lambda: perf_counter() >= end)

    def _look_at(self, limit: int, is_over: Callable[[], bool]) -> None:
        """Apply the filter to the next ``limit`` messages, or to as many as it has time for."""
        places, sizes = self.found
        begin = len(self.matched)
        last = min(begin + limit, len(places))
        for span in self._spans:
            end = bisect_left(places, span.end, begin, last)
            if begin < end:
                properties = record_properties(
                    span.data, places[begin:end], sizes[begin:end], self._topic_length, span.begin
                )
                matched = self._filter.is_matched_by_commit_log(properties, is_over)
                self.matched += matched
                self.count += matched.count(True)
                if len(matched) < end - begin:
                    break
                begin = end


class FilteredReader:
    """Selects messages by their properties."""

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self.checked_reader = checked_reader
        # Messages that the last read by a filter got past: fewer and larger passes cost less.
        self._first_passes: dict[MessageFilter, int] = {}

    def select(
        self, queue: ConsumeQueueInterface, request: GetMessageRequest, message_filter: MessageFilter
    ) -> Selection:
        """Select messages from an offset that the queue has."""
        limit = self._reader.scan_limit(request.max_msgs)
        if request.offset < queue.trusted_from:
            return self._select_unchecked(
                queue, request, message_filter, min(limit, queue.trusted_from - request.offset)
            )
        left = queue.max_offset - request.offset
        found = _places(queue, request.offset, min(limit * _MOST_PASSES if request.scans_ahead else limit, left))
        is_new = not len(found[0]) or self._reader.is_in_memory(int(found[0][0]))
        if not (is_new and message_filter.is_quick):
            return self._select_unchecked(queue, request, message_filter, min(limit, left))
        passes = _Passes(found, self._spans(found[0]), len(queue.topic_block), message_filter)
        max_msgs, _ = self._reader.limits(request.max_msgs, request.max_bytes, in_memory=True)
        passes.run(self._first_passes.get(message_filter, 0), limit, max_msgs)
        if len(self._first_passes) >= _MOST_KNOWN:
            self._first_passes.clear()
        selection = self._select_new(request, found, passes.matched)
        self._first_passes[message_filter] = selection.next_begin_offset - request.offset
        return selection

    def _select_new(self, request: GetMessageRequest, found: Places, matched: Sequence[bool]) -> Selection:
        """Select messages that this process stored a short while ago."""
        places, sizes = found
        max_msgs, max_bytes = self._reader.limits(request.max_msgs, request.max_bytes, in_memory=True)
        next_offset = request.offset + len(matched)
        ranges: list[tuple[int, int]] = []
        count = total = 0
        chosen = list(compress(range(len(matched)), matched))
        if isinstance(places, list):
            of_chosen = [(places[number], sizes[number]) for number in chosen]
        else:
            of_chosen = list(zip(places[chosen].tolist(), sizes[chosen].tolist(), strict=True))
        for number, (place, size) in zip(chosen, of_chosen, strict=True):
            if count and (count >= max_msgs or total + size > max_bytes):
                next_offset = request.offset + number
                break
            add_range(ranges, place, size)
            count += 1
            total += size
        return selected(request, next_offset, ranges, count, was_removed=False)

    def _spans(self, places: Numbers) -> list[_Span]:
        """Return the files of the log that hold messages."""
        log = self._commit_log
        spans: list[_Span] = []
        while len(places) and (not spans or int(places[-1]) >= spans[-1].end):
            file = log.queue.find(spans[-1].end if spans else int(places[0]))
            assert file is not None, "messages in memory are not removed"
            spans.append(_Span(file.file_from_offset, file.file_from_offset + file.file_size, file.buffer))
        return spans

    def _select_unchecked(
        self, queue: ConsumeQueueInterface, request: GetMessageRequest, message_filter: MessageFilter, limit: int
    ) -> Selection:
        """Select messages for the filter to examine, as many as the event loop may read."""
        entries = self.checked_reader.entries(queue, request.offset, limit, limit)
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
        in_memory = self.checked_reader.is_cached(*expected[0][1:3])
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
