"""Reads the messages that entries of a queue name, for services of the broker that store them again.

Each record is held against its entry and its checksum first, as for a pull of old messages. What is in the page cache
is read where it is mapped; where the disk has to be waited for, it is read on a thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import CheckedReader
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages

# What is read at a time: less than what the loop may check without holding up others.
MOST_BYTES: Final = 512 * 1024


class EntryReader:
    """Gives whole records.

    Args:
        commit_log: where they lie.
        checked_reader: checks them, and tells of those that are damaged.
    """

    def __init__(self, commit_log: CommitLog, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._checked_reader = checked_reader

    def entries(self, queue: ConsumeQueueInterface, queue_offset: int, limit: int) -> list[ExpectedRecord]:
        """Up to ``limit`` entries from ``queue_offset`` on that ``MOST_BYTES`` hold; at least one if there is any.

        None past the end of a file of the queue. In place of a damaged one that can name no record stands one of
        physical offset -1 and tags code 0.
        """
        found: list[ExpectedRecord] = []
        size = 0
        for number, entry in enumerate(self._checked_reader.entries(queue, queue_offset, limit, limit), queue_offset):
            size += entry[1]
            if size > MOST_BYTES and found:
                break
            found.append((number, *entry))
        return found

    def entries_at(self, queue: ConsumeQueueInterface, queue_offsets: Sequence[int]) -> list[ExpectedRecord]:
        """The entries of the first of ``queue_offsets`` (ascending), so many that ``MOST_BYTES`` hold their messages.

        Each in its place: one that the queue has no more, or that is damaged, is of physical offset -1.
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
        """The records that entries name, in their order; those that are damaged or gone are left out.

        Raises:
            StoreError: the disk cannot be read, or the log is closed.
        """
        begin = self._commit_log.min_offset
        named = [entry for entry in entries if entry[1] >= begin]
        if not named:
            return []
        result = GetMessageResult(
            GetMessageStatus.FOUND,
            named[-1][0] + 1,
            queue.min_offset,
            queue.max_offset,
            [entry[1:3] for entry in named],
            len(named),
            sum(entry[2] for entry in named),
        )
        messages = UncheckedMessages(queue, None, named)
        pieces = self._checked_reader.read_cached(result, messages)
        if pieces is None:
            pieces = await self._checked_reader.read_on_thread(result, messages)
        if len(pieces) == len(named):
            return [memoryview(piece) for piece in pieces]
        return list(_split(pieces))


def _split(pieces: Iterable[ReadableBuffer]) -> Iterator[memoryview]:
    """Single records, of pieces that hold one or several."""
    for piece in pieces:
        view, at = memoryview(piece), 0
        while at < len(view):
            end = at + int.from_bytes(view[at : at + 4], "big")
            yield view[at:end]
            at = end
