"""Reads of the messages that queue entries name, for services of the broker that store them again.

Each record is checked against its entry and its checksum, as for a pull of old messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import CheckedReader, ColdRead
from rocketbroker.store.read.get_message import UncheckedMessages

# Bytes to read at a time: less than the event loop may check without blocking others.
MOST_BYTES: Final = 512 * 1024


class EntryReader:
    """Reads whole records.

    Args:
        commit_log: the records.
        checked_reader: check of the records, which reports damaged ones.
    """

    def __init__(self, commit_log: CommitLog, checked_reader: CheckedReader) -> None:
        self._commit_log = commit_log
        self._checked_reader = checked_reader

    def entries(self, queue: ConsumeQueueInterface, queue_offset: int, limit: int) -> list[ExpectedRecord]:
        """Read up to ``limit`` entries of one queue file, at most ``MOST_BYTES`` of messages but at least one.

        A damaged entry that cannot name a record has the physical offset -1 and the tags code 0.
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
        sound = self._checked_reader.read(UncheckedMessages(queue, named, ranges, sum(entry[2] for entry in named)))
        if isinstance(sound, ColdRead):
            sound = await sound
        if len(sound.buffers) == len(named):
            return [memoryview(buffer) for buffer in sound.buffers]
        return list(_split(sound.buffers))


def _split(buffers: Iterable[ReadableBuffer]) -> Iterator[memoryview]:
    """Split buffers into single records."""
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        while at < len(view):
            end = at + int.from_bytes(view[at : at + 4], "big")
            yield view[at:end]
            at = end
