"""Reads from queues, the only entry to messages in order (DefaultMessageStore.getMessage).

A queue's entries select the messages. New ones are slices of the mapped files. The others are checked: at once if they
are in the page cache, else on a thread when the result is awaited.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.checked_reader import CheckedReader, ColdRead, SoundMessages
from rocketbroker.store.read.filtered_reader import FilteredReader
from rocketbroker.store.read.get_message import (
    GetMessageRequest,
    GetMessageResult,
    GetMessageStatus,
    Selection,
    UncheckedMessages,
)
from rocketbroker.store.read.queue_reader import BatchQueueReader, QueueReader


class MessageFetcher:
    """Reads messages of all queues."""

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueueStore, reader: QueueReader, checked_reader: CheckedReader
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._reader = reader
        self._filtered_reader = FilteredReader(commit_log, reader, checked_reader)
        self._batch_reader = BatchQueueReader(commit_log, reader, checked_reader)
        self.checked_reader = checked_reader

    def fetch(self, request: GetMessageRequest) -> GetMessageResult | Awaitable[GetMessageResult]:
        """Read messages; an awaitable starts to read when it is awaited, and may be dropped before.

        Raises:
            StoreError: The disk cannot be read, or the log is closed; also when awaited.
        """
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        ends = queue.min_offset, queue.max_offset
        if not ends[0] <= request.offset < ends[1]:
            return _outside(request.offset, *ends)
        if isinstance(queue, BatchConsumeQueue):
            selection = self._batch_reader.select(queue, request)
        elif request.message_filter is not None:
            selection = self._filtered_reader.select(queue, request, request.message_filter)
        else:
            if request.matches is None and (new := self._reader.read_new(queue, request)) is not None:
                return new
            selection = self._reader.select(queue, request)
        if not (count := selection.message_count):
            return GetMessageResult(selection.status, selection.next_begin_offset, *ends)
        if selection.unchecked is None:
            buffers = self._commit_log.slices(selection.ranges)
            following, size = selection.next_begin_offset, sum(map(len, buffers))
            return GetMessageResult(selection.status, following, *ends, buffers, count, size)
        sound = self.checked_reader.read(selection.unchecked)
        if isinstance(sound, ColdRead):
            return ColdRead(partial(self._read_later, sound, selection, request, ends, self._queues.cuts))
        return _result(sound, selection, ends)

    async def _read_later(
        self,
        read: ColdRead[SoundMessages],
        selection: Selection,
        request: GetMessageRequest,
        ends: tuple[int, int],
        cuts: int,
    ) -> GetMessageResult:
        if self._queues.cuts != cuts:
            # The log was truncated: the selected messages may be gone, and others in their place.
            found = self.fetch(request)
            return found if isinstance(found, GetMessageResult) else await found
        return _result(await read, selection, ends)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue and the offset after its last readable message."""
        queue = self._queues.find(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue else (0, 0)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last readable message of a queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return true if a queue has a message at an offset, near enough to the log's end to count as in memory."""
        queue = self._queues.find(topic, queue_id)
        entry = queue.entry(offset) if queue else None
        return entry is not None and self._reader.is_in_memory(entry.physical_offset)


def _outside(offset: int, minimum: int, maximum: int) -> GetMessageResult:
    """Return the result of a read from an offset at which the queue has no message."""
    if maximum == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, maximum, minimum, maximum)
    if offset < minimum:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
    if offset == maximum:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, minimum, maximum)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)


def _result(sound: SoundMessages, selection: Selection, ends: tuple[int, int]) -> GetMessageResult:
    following = selection.next_begin_offset if sound.stopped_at is None else sound.stopped_at
    status = selection.status if sound.message_count else GetMessageStatus.NO_MATCHED_MESSAGE
    return GetMessageResult(status, following, *ends, sound.buffers, sound.message_count, sound.total_size)


# Reads of the messages that queue entries name, for services of the broker that store them again.
#
# Each record is checked against its entry and its checksum, as for a pull of old messages.

# Bytes to read at a time: less than the event loop may check without blocking others.
MOST_BYTES: Final = 512 * 1024


class EntryReader:
    """Reads whole records."""

    def __init__(self, commit_log: CommitLog, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self.checked_reader = checked_reader

    def entries(self, queue: ConsumeQueueInterface, queue_offset: int, limit: int) -> list[ExpectedRecord]:
        """Read up to ``limit`` entries of one queue file, at most ``MOST_BYTES`` of messages but at least one.

        A damaged entry that cannot name a record has the physical offset -1 and the tags code 0.
        """
        found: list[ExpectedRecord] = []
        size = 0
        for number, entry in enumerate(self.checked_reader.entries(queue, queue_offset, limit, limit), queue_offset):
            size += entry[1]
            if size > MOST_BYTES and found:
                break
            found.append((number, *entry))
        return found

    def entries_at(self, queue: ConsumeQueueInterface, queue_offsets: Sequence[int]) -> list[ExpectedRecord]:
        """Read the entries at the first of ``queue_offsets`` (ascending), about ``MOST_BYTES`` of messages.

        A damaged or removed entry has the physical offset -1.
        """
        found: list[ExpectedRecord] = []
        size = at = 0
        while at < len(queue_offsets) and size <= MOST_BYTES:
            first = queue_offsets[at]
            run = at + 1
            while run < len(queue_offsets) and queue_offsets[run] == first + run - at:
                run += 1
            entries = self.entries(queue, first, run - at) if queue.min_offset <= first < queue.max_offset else []
            entries = entries or [(first, -1, 0, 0)]
            found += entries
            size += sum(entry[2] for entry in entries)
            at += len(entries)
        return found

    async def records(self, queue: ConsumeQueueInterface, entries: Sequence[ExpectedRecord]) -> list[memoryview]:
        """Read the records that entries name, in order, without those that are damaged or removed.

        Raises:
            StoreError: The disk cannot be read, or the log is closed.
        """
        begin = self._commit_log.min_offset
        named = [entry for entry in entries if entry[1] >= begin]
        if not named:
            return []
        ranges = [entry[1:3] for entry in named]
        sound = self.checked_reader.read(UncheckedMessages(queue, named, ranges, sum(entry[2] for entry in named)))
        if isinstance(sound, ColdRead):
            sound = await sound
        if len(sound.buffers) == len(named):
            return [memoryview(buffer) for buffer in sound.buffers]
        return list(split_records(sound.buffers))


def split_records(buffers: Iterable[ReadableBuffer]) -> Iterator[memoryview]:
    """Split buffers into single records."""
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        while at < len(view):
            end = at + int.from_bytes(view[at : at + 4], "big")
            yield view[at:end]
            at = end
