"""Reads of one queue: which messages a pull gets, offsets by time (DefaultMessageStore.getMessage)."""

from collections.abc import Callable, Iterable

from rocketbroker.codec.message.message_encoder import BODY_POSITION, STORE_TIMESTAMP_POSITION, SYS_FLAG_POSITION
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import CheckedReader
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages

_BORN_HOST_V6 = 0x10


class QueueReader:
    """Answers pulls from the queue's entries; the messages themselves are not touched.

    Args:
        commit_log: where the messages lie.
        config: the transfer limits.
        memory_bytes: messages so near to the end of the log count as in memory.
        checked_reader: for messages that may come from the disk.
    """

    def __init__(
        self, commit_log: CommitLog, config: MessageStoreConfig, memory_bytes: int, checked_reader: CheckedReader
    ) -> None:
        self._commit_log = commit_log
        self._config = config
        self._memory_bytes = memory_bytes
        self._checked_reader = checked_reader

    def read(
        self,
        queue: ConsumeQueueInterface,
        offset: int,
        max_msgs: int,
        max_bytes: int,
        matches: Callable[[int], bool] | None,
    ) -> GetMessageResult:
        """Messages of a queue from ``offset`` on: at least one if there is any, within the limits.

        Args:
            queue: the queue.
            offset: queue offset of the first message wanted.
            max_msgs: how many at the most.
            max_bytes: how many bytes at the most; the settings' limits hold as well.
            matches: whether a tags code is wanted; ``None`` for all.
        """
        minimum, maximum = queue.min_offset, queue.max_offset
        if not minimum <= offset < maximum:
            return outside(queue, offset)
        result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, minimum, maximum, [])
        if offset < queue.trusted_from:
            self._collect_unchecked(queue, queue.trusted_from, result, max_msgs, max_bytes, matches)
        else:
            limit = max_msgs if matches is None else max(self.scan_limit(), max_msgs)
            self._collect(queue.entries(offset, limit), result, max_msgs, max_bytes, matches)
            if not result.in_memory:
                self._collect_unchecked(queue, maximum, result, max_msgs, max_bytes, matches)
        if result.message_count:
            result.status = GetMessageStatus.FOUND
        elif result.next_begin_offset == offset:
            # The rest of the file has no entries: what follows is in the next one.
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
        return result

    def _collect_unchecked(
        self,
        queue: ConsumeQueueInterface,
        end: int,
        result: GetMessageResult,
        max_msgs: int,
        max_bytes: int,
        matches: Callable[[int], bool] | None,
    ) -> None:
        """As ``_collect``, of messages before queue offset ``end`` that may come from the disk, as their entries may.

        Entries that can name no record are left out.
        """
        offset = result.next_begin_offset
        if matches is None and self._collect_sound(queue, end, result, max_msgs, max_bytes):
            return
        # More than are wanted: where many are damaged in a row the consumer gets over them soon.
        limit = max(self.scan_limit(), max_msgs)
        entries = self._checked_reader.entries(queue, offset, max_msgs, min(limit, end - offset))
        result.unchecked = UncheckedMessages(queue, matches, [])
        if matches is not None:
            matches = self._checked_reader.possible_matches(queue, matches)
        self._collect(entries, result, max_msgs, max_bytes, matches)

    def _collect_sound(
        self, queue: ConsumeQueueInterface, end: int, result: GetMessageResult, max_msgs: int, max_bytes: int
    ) -> bool:
        """Take messages that are all in the page cache, and check them here; false when that is not so of one."""
        offset = result.next_begin_offset
        max_msgs, max_bytes = self.limits(max_msgs, max_bytes, in_memory=True)
        entries = list(queue.entries(offset, min(max_msgs, end - offset)))
        sound = self._checked_reader.count_sound(queue, offset, entries, max_bytes)
        if sound:
            self._collect(entries[:sound], result, max_msgs, max_bytes, None, checked=True)
        return sound > 0

    def _collect(
        self,
        entries: Iterable[tuple[int, int, int]],
        result: GetMessageResult,
        max_msgs: int,
        max_bytes: int,
        matches: Callable[[int], bool] | None,
        *,
        checked: bool = False,
    ) -> None:
        """Take messages within the limits. None, with ``in_memory`` false, if they lie far back and are not checked."""
        log_min = self._commit_log.min_offset
        hot = self._commit_log.max_offset - self._memory_bytes
        ranges = result.ranges
        unchecked = None if result.unchecked is None else result.unchecked.expected
        next_offset = result.next_begin_offset
        count = total = 0
        last_end = -1
        for physical_offset, size, tags_code in entries:
            next_offset += 1
            if physical_offset < log_min:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                continue
            if matches is not None and not matches(tags_code):
                continue
            if not count:
                in_memory = result.in_memory = physical_offset >= hot
                if unchecked is None and not (in_memory or checked):
                    return  # they may come from the disk, and so may their entries
                in_memory = in_memory or checked or self._checked_reader.is_cached(physical_offset, size)
                max_msgs, max_bytes = self.limits(max_msgs, max_bytes, in_memory=in_memory)
            elif total + size > max_bytes:
                next_offset -= 1
                break
            if physical_offset == last_end:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
            else:
                ranges.append((physical_offset, size))
            if unchecked is not None:
                unchecked.append((next_offset - 1, physical_offset, size, tags_code))
            last_end = physical_offset + size
            count += 1
            total += size
            if count >= max_msgs:
                break
        result.next_begin_offset = next_offset
        result.message_count = count
        result.total_size = total

    def scan_limit(self) -> int:
        """Entries that a filtered pull looks at before it answers that nothing matched."""
        return self._config.max_filter_message_size // CQ_STORE_UNIT_SIZE

    def is_in_memory(self, physical_offset: int) -> bool:
        """Whether a message lies so near to the end of the log that it is taken to be in memory."""
        return physical_offset >= max(self._commit_log.max_offset - self._memory_bytes, self._commit_log.min_offset)

    def limits(self, max_msgs: int, max_bytes: int, *, in_memory: bool) -> tuple[int, int]:
        """What a pull may have at the most: messages, and bytes of them."""
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
        """Store time in ms of a message of the queue, -1 when it does not hold it or it is damaged (blocks)."""
        record = queue.expected_record(queue_offset)
        head = self._commit_log.bytes_at(record[1], BODY_POSITION) if record else None
        if record is None or head is None:
            return -1
        if len(head) < BODY_POSITION or not queue.record_check.is_head(head, record):
            return -1
        sys_flag = int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big")
        position = STORE_TIMESTAMP_POSITION + (12 if sys_flag & _BORN_HOST_V6 else 0)
        return int.from_bytes(head[position : position + 8], "big")

    def offset_by_time(self, queue: ConsumeQueueInterface, timestamp_ms: int, upper: bool) -> int:
        """Queue offset of the first message stored at or after a time; with ``upper`` the last not after it (blocks).

        Messages are in the order of their store times, so that halving finds it. In place of a damaged message the next
        one that is sound is looked at, so that the answer may be a damaged message before the right one.
        """
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            found, stored = self._next_time(queue, middle, high)
            if found < high and (stored < timestamp_ms or (upper and stored == timestamp_ms)):
                low = found + 1
            else:
                high = middle
        if upper:
            return max(low - 1, queue.min_offset)
        return low

    def _next_time(self, queue: ConsumeQueueInterface, start: int, end: int) -> tuple[int, int]:
        """The first sound message from ``start`` on and its store time, ``end`` and -1 when there is none before."""
        times = ((number, self.store_timestamp(queue, number)) for number in range(start, end))
        return next((found for found in times if found[1] >= 0), (end, -1))


def outside(queue: ConsumeQueueInterface, offset: int) -> GetMessageResult:
    """What is answered to a read from an offset at which the queue has no message."""
    minimum, maximum = queue.min_offset, queue.max_offset
    if maximum == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, maximum, minimum, maximum)
    if offset < minimum:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
    if offset == maximum:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, minimum, maximum)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)
