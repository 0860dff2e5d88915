"""Dispatch of many records of the log to their queues at once, with numpy.

It is separate from ``reput_message_service.py`` because importing numpy takes longer than a broker may take to start.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_batch import MIN_INNER_SIZE
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.window_messages import WindowMessages, due_times, keys_of
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore, is_folder_name
from rocketbroker.store.queue.dispatch_request import IndexKeys

# Entries beyond this offset have positions that no file name can express.
_LAST_OFFSET = 1 << 58

#: Queue entries, shape (n,) of CONSUME_QUEUE_ENTRY.
Entries: TypeAlias = NDArray[np.void]


class ReputColumns:
    """State of each queue before the new dispatch, and entry of the messages that it lacks.

    Args:
        deleted: returns the CommitLog offset by topic before which its messages are left out.
        on_damage: called with the CommitLog offsets of a range without a sound record, and the reason.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        delay_levels: dict[int, int],
        deleted: Callable[[], Mapping[str, int]],
        on_damage: Callable[[int, int, str], None],
        on_entered: Callable[[ConsumeQueueInterface, int, list[int]], None],
    ) -> None:
        self._on_entered = on_entered
        self._deleted = deleted
        self._queues = queues
        self._delay_levels = delay_levels
        self._on_damage = on_damage
        # CommitLog offset of the last message that each queue had before, -1 for none.
        self._known_ends: dict[ConsumeQueueInterface, int] = {}
        # Ranges of the log without a sound record: messages missing from a queue were there.
        self._holes: list[int] = []

    def add_gap(self, begin: int, end: int, why: str) -> None:
        """Note that there is no sound record between two CommitLog offsets."""
        self._holes.append(begin)
        self._on_damage(begin, end, why)

    def enter(self, records: Records) -> IndexKeys:
        """Enter messages, at least one, into their queues, and return the keys to index them by.

        Raises:
            StoreFullError: The disk has no room for the entries.
        """
        messages = WindowMessages(records)
        kept = ~messages.are_before(self._deleted())
        keeps_all, has_batches = bool(kept.all()), bool(messages.are_batches.any())
        entries = np.empty(len(messages), CONSUME_QUEUE_ENTRY)
        entries["commit_log_offset"] = messages.offsets
        entries["size"] = messages.records.total_size
        entries["tags_code"] = messages.tags_codes
        chosen = np.zeros(len(messages), np.bool_)
        for topic, queue_id, all_members in messages.by_queue():
            # Few numpy calls for each queue: with few messages they are most of the time.
            members = all_members if keeps_all else all_members[kept[all_members]]
            if not len(members):
                continue
            of_batches = has_batches and bool(messages.are_batches[members].any())
            queue = self._queue(topic, queue_id, of_batches=of_batches)
            if queue is None:
                self._refuse(messages, members, f"topic {topic!r}, queue {queue_id} is impossible")
            elif queue.holds_batches:
                chosen[self._enter_batches(queue, messages, members)] = True
            elif not of_batches:
                chosen[self._enter_queue(queue, messages, entries, members)] = True
            else:
                # A batch in a topic of single messages is found by its keys alone.
                are_batches = messages.are_batches[members]
                chosen[members[are_batches]] = True
                if not are_batches.all():
                    chosen[self._enter_queue(queue, messages, entries, members[~are_batches])] = True
        keys = keys_of(messages)
        numbers, hashes = keys.numbers, keys.hashes
        if not chosen.all():
            numbers, hashes = numbers[chosen[numbers]], hashes[chosen[numbers]]
        stored = messages.store_timestamps
        return IndexKeys(hashes, messages.offsets[numbers], stored[numbers], int(stored[-1]))

    def _queue(self, topic: bytes, queue_id: int, *, of_batches: bool) -> ConsumeQueueInterface | None:
        """Return the queue of messages with these fields, ``None`` if the fields are impossible: they are damaged."""
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        if queue_id < 0 or not is_folder_name(name):
            return None
        queue = self._queues.find_or_create(name, queue_id, of_batches=of_batches)
        if queue not in self._known_ends:
            last = queue.entry(queue.max_offset - 1)
            self._known_ends[queue] = last.physical_offset if last else -1
        return queue

    def _enter_queue(
        self, queue: ConsumeQueueInterface, messages: WindowMessages, entries: Entries, members: Positions
    ) -> Positions:
        """Enter messages into their queue, and return those to index.

        Messages before the last one that the queue had are in it, or belong to a topic that was deleted and created
        again: they must not be added after the new messages (ConsumeQueueInterface.putMessagePositionInfo).
        """
        if int(messages.offsets[members[0]]) > self._known_ends[queue]:
            refused = self._put(queue, messages, entries, members)
            queue.next_offset = queue.max_offset
            return np.setdiff1d(members, refused) if refused else members
        known = messages.offsets[members] <= self._known_ends[queue]
        gone = known & (messages.queue_offsets[members] >= queue.max_offset)
        refused = self._put(queue, messages, entries, members[~known]) if not known.all() else []
        queue.next_offset = queue.max_offset
        left = members[~gone] if gone.any() else members
        return np.setdiff1d(left, refused) if refused else left

    def _put(
        self, queue: ConsumeQueueInterface, messages: WindowMessages, of_all: Entries, members: Positions
    ) -> list[int]:
        """Enter messages that the queue did not have; return those that cannot be in it."""
        numbers, entries = messages.queue_offsets[members], of_all[members]
        if queue.schedule:
            entries["tags_code"] = due_times(self._delay_levels, messages, members)
        breaks = numbers[1:] - numbers[:-1] != 1
        bounds = [0, *((np.flatnonzero(breaks) + 1).tolist() if breaks.any() else ()), len(members)]
        refused: list[int] = []
        for begin, end in pairwise(bounds):
            run, first = members[begin:end], int(numbers[begin])
            if self._make_place(queue, first, int(messages.offsets[run[0]]), len(run)):
                queue.put_entries(first, entries[begin:end].tobytes())
                self._on_entered(queue, first, entries["tags_code"][begin:end].tolist())
            else:
                self._refuse(messages, run, f"queue offset {first} is impossible: the queue ends at {queue.max_offset}")
                refused += run.tolist()
        return refused

    def _enter_batches(self, queue: ConsumeQueueInterface, messages: WindowMessages, members: Positions) -> list[int]:
        """Enter messages as ``_enter_queue`` does, record by record, into a queue whose records may be batches."""
        numbers, offsets = messages.queue_offsets, messages.offsets
        indexed = []
        for at in members.tolist():
            first, offset = int(numbers[at]), int(offsets[at])
            if offset <= self._known_ends[queue]:
                if first < queue.max_offset:
                    indexed.append(at)
            elif why := _why_no_place(queue, first, offset):
                self._refuse(messages, np.array([at]), why)
            else:
                if first < queue.max_offset:
                    queue.cut(first)
                size = int(messages.records.total_size[at])
                tags_code = int(messages.tags_codes[at])
                queue.put(first, offset, size, tags_code)
                self._on_entered(queue, queue.max_offset - 1, [tags_code])
                indexed.append(at)
        queue.next_offset = queue.max_offset
        return indexed

    def _make_place(self, queue: ConsumeQueueInterface, first: int, offset: int, count: int) -> bool:
        """Move the queue's end to the first of messages at a CommitLog offset; return false if they cannot be there.

        A later message replaces an older one: their topic was deleted in between, and created again.
        """
        end = queue.max_offset
        last = queue.entry(end - 1)
        if last is None:
            if not 0 <= first <= _LAST_OFFSET:
                return False
            if first != end and queue.begin_of_files is not None:
                # All that the queue held has expired, and the messages up to this one before they were entered: written
                # after the end, it would leave entries of zeros that count as messages.
                queue.go_on_at(first)
            return True
        if first < end:
            # A single message that does not begin a topic more likely has a wrong offset.
            if first < 0 or (first and count == 1):
                return False
            queue.cut(first)
        elif first > end:
            if (first - end) * MIN_RECORD_SIZE > offset - last.end:
                return False
            where = last.physical_offset
            hole = bisect_left(self._holes, where)
            if hole < len(self._holes) and self._holes[hole] < offset:
                where = self._holes[hole]
            # Readers that check find no such message there, and continue after it. Others would send these bytes of
            # some record as a message: while a slave follows its master, entries before the gap count as new.
            queue.put_entries(end, ENTRY.pack(where, MIN_RECORD_SIZE, 0) * (first - end))
            queue.trusted_from = max(queue.trusted_from, first)
        return True

    def _refuse(self, messages: WindowMessages, members: Positions, why: str) -> None:
        for at in members.tolist():
            offset = int(messages.offsets[at])
            self.add_gap(offset, offset + int(messages.records.total_size[at]), why)


def _why_no_place(queue: ConsumeQueueInterface, first: int, offset: int) -> str:
    """Return the reason why a record cannot have a queue offset in a queue of batches, empty if it can.

    A record that restarts the queue replaces all others: their topic was deleted, and created again.
    """
    end = queue.max_offset
    last = queue.entry(end - 1)
    if last is None:
        can_be = 0 <= first <= _LAST_OFFSET
    else:
        can_be = first in {0, end} or (first > end and (first - end) * MIN_INNER_SIZE <= offset - last.end)
    return "" if can_be else f"queue offset {first} is impossible: the queue ends at {end}"
