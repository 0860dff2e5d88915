"""Selection of messages by the entries of a queue, and offsets by time (DefaultMessageStore.getMessage)."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise

from rocketbroker.codec.message.message_decoder import BODY_POSITION, STORE_TIMESTAMP_POSITION, SYS_FLAG_POSITION
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE, ENTRY
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue, BatchEntry
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import MOST_ON_LOOP, CheckedReader
from rocketbroker.store.read.get_message import (
    GetMessageRequest,
    GetMessageResult,
    GetMessageStatus,
    PropertyFilter,
    Selection,
    UncheckedMessages,
    selected,
)

_BORN_HOST_V6 = 0x10


class QueueReader:
    """Selects messages by the entries of a queue, and finds offsets by time; selection does not touch new messages.

    Args:
        memory_bytes: size of the log's end that counts as in memory.
    """

    def __init__(
        self, commit_log: CommitLog, config: MessageStoreConfig, memory_bytes: int, checked_reader: CheckedReader
    ) -> None:
        self._commit_log = commit_log
        self._config = config
        self._memory_bytes = memory_bytes
        self.checked_reader = checked_reader

    def select(self, queue: ConsumeQueueInterface, request: GetMessageRequest) -> Selection:
        """Select messages from an offset that the queue has."""
        if request.offset < queue.trusted_from:
            return self._select_unchecked(queue, request, queue.trusted_from)
        limit = self.scan_limit(request.max_msgs)
        if request.matches is None:
            limit = min(limit, request.max_msgs)
        entries = queue.entries(request.offset, limit)
        found = self._collect(entries, request, request.matches)
        return self._select_unchecked(queue, request, queue.max_offset) if found is None else found

    def read_new(self, queue: ConsumeQueueInterface, request: GetMessageRequest) -> GetMessageResult | None:
        """Read messages, whatever their tags, from an offset that the queue has.

        Return ``None`` if one of them is not new or in another file of the log, or if they exceed the limit of bytes.
        """
        if request.offset < queue.trusted_from:
            return None
        max_msgs, max_bytes = self.limits(request.max_msgs, request.max_bytes, in_memory=True)
        entries = queue.entry_bytes(request.offset, max_msgs)
        if not entries:
            return None
        # Of the range that the messages so far end with.
        start = end = int.from_bytes(entries[:8], "big", signed=True)
        file = self._commit_log.queue.find(start)
        if file is None:
            return None
        base, buffer = file.file_from_offset, file.buffer
        lowest = max(base, self._commit_log.queue.max_offset - self._memory_bytes)
        highest = base + file.wrote
        total = 0
        buffers: list[memoryview] = []
        for physical_offset, size, _ in ENTRY.iter_unpack(entries):
            if physical_offset != end:
                buffers.append(buffer[start - base : end - base])
                start = physical_offset
            end = physical_offset + size
            total += size
            if start < lowest or end > highest:
                return None
        if total > max_bytes:
            return None
        buffers.append(buffer[start - base : end - base])
        count = len(entries) // CQ_STORE_UNIT_SIZE
        following, found = request.offset + count, GetMessageStatus.FOUND
        return GetMessageResult(found, following, queue.min_offset, queue.max_offset, buffers, count, total)

    def _select_unchecked(self, queue: ConsumeQueueInterface, request: GetMessageRequest, end: int) -> Selection:
        """Select messages before queue offset ``end``; they and their entries may come from the disk."""
        offset, matches = request.offset, request.matches
        if matches is None:
            # In the page cache they are checked here, if all are sound.
            max_msgs, max_bytes = self.limits(request.max_msgs, request.max_bytes, in_memory=True)
            first = list(queue.entries(offset, min(max_msgs, end - offset)))
            sound = self.checked_reader.count_sound(queue, offset, first, max_bytes)
            found = self._collect(first[:sound], request, None, checked=True) if sound else None
            if found is not None:
                return found
        # More than requested, so that a consumer soon gets past many damaged ones in a row.
        limit = self.scan_limit(request.max_msgs)
        entries = self.checked_reader.entries(queue, offset, request.max_msgs, min(limit, end - offset))
        expected: list[ExpectedRecord] = []
        if matches is not None:
            matches = self.checked_reader.possible_matches(queue, matches)
        found = self._collect(entries, request, matches, expected)
        assert found is not None, "unchecked messages are collected wherever they are"
        size = sum(record[2] for record in expected)
        return found._replace(unchecked=UncheckedMessages(queue, expected, found.ranges, size, request.matches))

    def _collect(
        self,
        entries: Iterable[tuple[int, int, int]],
        request: GetMessageRequest,
        matches: Callable[[int], bool] | None,
        expected: list[ExpectedRecord] | None = None,
        *,
        checked: bool = False,
    ) -> Selection | None:
        """Select messages within the limits; append them to ``expected`` if they must still be checked.

        Return ``None`` if they are far back in the log and neither checked nor collected for a check: their entries are
        not trusted either.
        """
        log_min = self._commit_log.min_offset
        hot = self._commit_log.max_offset - self._memory_bytes
        max_msgs, max_bytes = request.max_msgs, request.max_bytes
        was_removed = False
        ranges: list[tuple[int, int]] = []
        next_offset = request.offset
        count = total = 0
        last_end = -1
        for physical_offset, size, tags_code in entries:
            next_offset += 1
            if physical_offset < log_min:
                was_removed = True
                continue
            if matches is not None and not matches(tags_code):
                continue
            if not count:
                in_memory = checked or physical_offset >= hot
                if expected is None and not in_memory:
                    return None
                in_memory = in_memory or self.checked_reader.is_cached(physical_offset, size)
                max_msgs, max_bytes = self.limits(max_msgs, max_bytes, in_memory=in_memory)
            elif total + size > max_bytes:
                next_offset -= 1
                break
            if physical_offset == last_end:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
            else:
                ranges.append((physical_offset, size))
            if expected is not None:
                expected.append((next_offset - 1, physical_offset, size, tags_code))
            last_end = physical_offset + size
            count += 1
            total += size
            if count >= max_msgs:
                break
        return selected(request, next_offset, ranges, count, was_removed=was_removed)

    def scan_limit(self, max_msgs: int) -> int:
        """Return the number of entries that a pull examines before it answers that nothing matched.

        A client may ask for any number of messages, and comparing all tags of a queue file takes half a second of the
        event loop. So the request counts only up to what the transfer limits would let it have. A client whose pull
        ends without a match goes on at the offset after the last entry examined.
        """
        config = self._config
        most = max(config.max_transfer_count_on_message_in_memory, config.max_transfer_count_on_message_in_disk)
        return max(config.max_filter_message_size // CQ_STORE_UNIT_SIZE, min(max_msgs, most))

    def is_in_memory(self, physical_offset: int) -> bool:
        """Return true if a message is near enough to the log's end to count as in memory."""
        return physical_offset >= max(self._commit_log.max_offset - self._memory_bytes, self._commit_log.min_offset)

    def limits(self, max_msgs: int, max_bytes: int, *, in_memory: bool) -> tuple[int, int]:
        """Apply the transfer limits of the settings to those of a request."""
        config = self._config
        if in_memory:
            count, size = (
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
            )
        else:
            count, size = config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk
        return min(max_msgs, count), min(max_bytes, size)

    def store_timestamp(self, queue: ConsumeQueueInterface, queue_offset: int) -> int:
        """Return the store time in ms of a message, -1 if the queue does not have it or it is damaged (blocks)."""
        record = queue.expected_record(queue_offset)
        head = self._commit_log.bytes_at(record.physical_offset, BODY_POSITION) if record else None
        if record is None or head is None:
            return -1
        if len(head) < BODY_POSITION or not queue.record_check.is_head(head, record):
            return -1
        sys_flag = int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big")
        position = STORE_TIMESTAMP_POSITION + (12 if sys_flag & _BORN_HOST_V6 else 0)
        return int.from_bytes(head[position : position + 8], "big")

    def offset_by_time(self, queue: ConsumeQueueInterface, timestamp_ms: int, upper: bool) -> int:
        """Find the first message stored at or after a time, with ``upper`` the last one not after it (blocks).

        Bisect, as messages are in the order of their store times. The next sound message stands in for a damaged one,
        so that the answer may be a damaged message before the right one.
        """
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            times = ((number, self.store_timestamp(queue, number)) for number in range(middle, high))
            found, stored = next((sound for sound in times if sound[1] >= 0), (high, -1))
            if found < high and (stored < timestamp_ms or (upper and stored == timestamp_ms)):
                low = found + 1
            else:
                high = middle
        if upper:
            return max(low - 1, queue.min_offset)
        return low


# Selection in queues whose records may be batches (DefaultMessageStore.getMessage of a BatchConsumeQueue).
#
# A batch is returned as a whole or not at all, even to a read that begins inside it; clients split it. As in RocketMQ,
# filters see the record, not the messages in it. All records are checked before they are returned.


class BatchQueueReader:
    """Selects records."""

    def __init__(self, commit_log: CommitLog, reader: QueueReader, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._reader = reader
        self.checked_reader = checked_reader

    def select(self, queue: BatchConsumeQueue, request: GetMessageRequest) -> Selection:
        """Select records with up to ``max_msgs`` messages, at least one record, from an offset that the queue has."""
        matches, message_filter = request.matches, request.message_filter
        if matches is not None:
            matches = self.checked_reader.possible_matches(queue, matches)
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
                in_memory = self.checked_reader.is_cached(entry.physical_offset, entry.size)
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
        log, offset, size = self._commit_log, entry.physical_offset, entry.size
        file_size = log.queue.file_size
        inside = offset + size <= log.max_offset and (offset - log.min_offset) % file_size + size <= file_size
        is_sized = inside and queue.record_check.least_size <= size
        if offset >= log.min_offset and is_sized and log.may_be_record(offset, size):
            return matches is None or matches(entry.tags_code)
        if size != MIN_RECORD_SIZE:
            self._report(queue, entry, f"it names {size} bytes at {offset}, where the queue cannot have a record")
        return False

    def _report(self, queue: BatchConsumeQueue, entry: BatchEntry, what: str) -> None:
        self.checked_reader.report_entry(queue, entry.base, what)
