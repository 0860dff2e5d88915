"""Reads from queues, the only entry to messages in order (DefaultMessageStore.getMessage).

A queue's entries select the messages. New ones are slices of the mapped files. The others are checked: at once if they
are in the page cache, else on a thread when the result is awaited.
"""

from collections.abc import Awaitable
from functools import partial

from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.batch_queue_reader import BatchQueueReader
from rocketbroker.store.read.checked_reader import CheckedReader, ColdRead, SoundMessages
from rocketbroker.store.read.filtered_reader import FilteredReader
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus, Selection
from rocketbroker.store.read.queue_reader import QueueReader


class MessageFetcher:
    """Reads messages of all queues.

    Args:
        commit_log: the records.
        queues: the queues.
        reader: selection by tags.
        checked_reader: reads of messages that may come from the disk.
    """

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueueStore, reader: QueueReader, checked_reader: CheckedReader
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._reader = reader
        self._filtered_reader = FilteredReader(commit_log, reader, checked_reader)
        self._batch_reader = BatchQueueReader(commit_log, reader, checked_reader)
        self._checked_reader = checked_reader

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
        if request.matches is None and request.message_filter is None and not queue.holds_batches:
            new = self._reader.read_new(queue, request)
            if new is not None:
                return new
        selection = self._select(queue, request)
        if not selection.message_count:
            return GetMessageResult(selection.status, selection.next_begin_offset, *ends)
        if selection.unchecked is None:
            return self._new_messages(selection, ends)
        sound = self._checked_reader.read(selection.unchecked)
        if isinstance(sound, ColdRead):
            return ColdRead(partial(self._read_later, sound, selection, request, ends, self._queues.cuts))
        return _result(sound, selection, ends)

    def _new_messages(self, selection: Selection, ends: tuple[int, int]) -> GetMessageResult:
        buffers = self._commit_log.slices(selection.ranges)
        size = sum(map(len, buffers))
        return GetMessageResult(
            selection.status, selection.next_begin_offset, *ends, buffers, selection.message_count, size
        )

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

    def _select(self, queue: ConsumeQueueInterface, request: GetMessageRequest) -> Selection:
        if isinstance(queue, BatchConsumeQueue):
            return self._batch_reader.select(queue, request)
        if request.message_filter is not None:
            return self._filtered_reader.select(queue, request, request.message_filter)
        return self._reader.select(queue, request)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue and the offset after its last readable message."""
        queue = self._queues.find(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue else (0, 0)

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
