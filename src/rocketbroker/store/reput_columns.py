"""Enters many records of the log into their queues at once, by numpy. Part of ``reput_message_service.py``, and apart
from it since importing numpy takes longer than a broker's start may.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.message.find_properties_many import find_properties_many
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.delay_level_table import tags_code_of
from rocketbroker.store.dispatch_request import NO_TAGS, IndexColumns

Column = npt.NDArray[np.int64]

# A folder's name has no more bytes.
_LONGEST_TOPIC = 255
# Entries behind it have positions that no file's name can bear.
_LAST_OFFSET = 1 << 58


class _Messages:
    """Records by column; what is found in their properties, and their bytes, as lists."""

    def __init__(self, records: Records, data: bytes) -> None:
        self.offsets: Column = records.starts + records.base
        self.sizes = records.total_size
        self.queue_ids: Column = records.field("queue_id").astype(np.int64)
        self.queue_offsets: Column = records.field("queue_offset").astype(np.int64)
        self.timestamps: Column = records.field("store_timestamp").astype(np.int64)
        transaction = records.sys_flag & TRANSACTION_ROLLBACK_TYPE
        self.queued = (transaction != TRANSACTION_PREPARED_TYPE) & (transaction != TRANSACTION_ROLLBACK_TYPE)
        topic_ends = (records.topic_at + records.topic_length).tolist()
        self.topics = list(map(data.__getitem__, map(slice, records.topic_at.tolist(), topic_ends)))
        property_ends = (records.properties_at + records.properties_length).tolist()
        self.properties = list(map(data.__getitem__, map(slice, records.properties_at.tolist(), property_ends)))
        self.tags, self.unique_keys, self.keys = find_properties_many(self.properties)

    def by_queue(self) -> Iterator[tuple[bytes, int, Column]]:
        """Topic and queue number of each queue, and the messages that go into it, oldest first."""
        names = {topic: number for number, topic in enumerate(dict.fromkeys(self.topics))}
        numbers = np.fromiter(map(names.__getitem__, self.topics), np.int64, len(self.topics))
        members = np.flatnonzero(self.queued)
        keys = (numbers << 32 | self.queue_ids & 0xFFFFFFFF)[members]
        order = np.argsort(keys, kind="stable")
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for group in np.split(members[order], cuts) if len(members) else ():
            yield self.topics[group[0]], int(self.queue_ids[group[0]]), group


class ReputColumns:
    """Knows what each queue had before the re-dispatch, and enters what it lacks.

    Args:
        queues: the queues.
        delay_levels: ms by level.
        deleted: CommitLog offset by topic before which its messages are left out.
        on_damage: told of what is no sound record, by CommitLog offsets, and why.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        delay_levels: dict[int, int],
        deleted: Mapping[str, int],
        on_damage: Callable[[int, int, str], None],
    ) -> None:
        self._deleted = {topic.encode(): mark for topic, mark in deleted.items()}
        self._queues = queues
        self._delay_levels = delay_levels
        self._on_damage = on_damage
        # CommitLog offset of the last message that each queue had before, -1 for none.
        self._known_ends: dict[ConsumeQueue, int] = {}
        # Where the log holds no sound record: messages that a queue misses lay there.
        self._holes: list[int] = []

    def passed_over(self, begin: int, end: int, why: str) -> None:
        """Take note that there is no sound record between two CommitLog offsets."""
        self._holes.append(begin)
        self._on_damage(begin, end, why)

    def enter(self, records: Records, data: bytes) -> IndexColumns:
        """Enter messages into their queues; gives those that are to be indexed.

        Raises:
            StoreFullError: the disk has no room for the entries.
        """
        messages = _Messages(records, data)
        count = len(messages.offsets)
        chosen = np.zeros(count, np.bool_)
        prefix_hashes = np.zeros(count, np.int64)
        tag_hashes = np.full(count, NO_TAGS, np.int64)
        for topic, queue_id, all_members in messages.by_queue():
            members = all_members
            if topic in self._deleted:
                members = members[messages.offsets[members] >= self._deleted[topic]]
                if not len(members):
                    continue
            queue = self._queue(topic, queue_id)
            if queue is None:
                self._refuse(messages, members, f"topic {topic!r}, queue {queue_id} cannot be")
                continue
            entered = self._enter_queue(queue, messages, members)
            chosen[entered] = True
            prefix_hashes[entered] = queue.key_prefix_hash
            tag_hashes[entered] = _tag_hashes(queue, [messages.tags[at] for at in entered.tolist()])
        return _index_columns(messages, np.flatnonzero(chosen), prefix_hashes, tag_hashes)

    def _queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue of messages with these fields, ``None`` when there can be none: the fields are damaged."""
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        if queue_id < 0 or len(topic) > _LONGEST_TOPIC or name in {"", ".", ".."} or "/" in name or "\0" in name:
            return None
        queue = self._queues.find_or_create(name, queue_id)
        if queue not in self._known_ends:
            last = queue.entry(queue.max_offset - 1)
            self._known_ends[queue] = last[0] if last else -1
        return queue

    def _enter_queue(self, queue: ConsumeQueue, messages: _Messages, members: Column) -> Column:
        """Enter messages into their queue; gives those that are to be indexed.

        What lies before the last message that the queue had is in it, or of a topic that was deleted and made again
        since: such ones must not come back behind the new messages (ConsumeQueue.putMessagePositionInfo).
        """
        known = messages.offsets[members] <= self._known_ends[queue]
        gone = known & (messages.queue_offsets[members] >= queue.max_offset)
        refused = self._put(queue, messages, members[~known]) if not known.all() else []
        queue.next_offset = queue.max_offset
        left = members[~gone] if gone.any() else members
        return np.setdiff1d(left, refused) if refused else left

    def _put(self, queue: ConsumeQueue, messages: _Messages, members: Column) -> list[int]:
        """Enter messages that the queue did not have; gives those that it cannot have."""
        numbers = messages.queue_offsets[members]
        entries = np.empty(len(members), CONSUME_QUEUE_ENTRY)
        entries["commit_log_offset"] = messages.offsets[members]
        entries["size"] = messages.sizes[members]
        entries["tags_code"] = self._tags_codes(queue, messages, members.tolist())
        bounds = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(members)]
        refused: list[int] = []
        for begin, end in pairwise(bounds):
            run, first = members[begin:end], int(numbers[begin])
            if self._make_place(queue, first, int(messages.offsets[run[0]]), len(run)):
                queue.put_entries(first, entries[begin:end].tobytes())
            else:
                self._refuse(messages, run, f"queue offset {first} cannot be, the queue ends at {queue.max_offset}")
                refused += run.tolist()
        return refused

    def _make_place(self, queue: ConsumeQueue, first: int, offset: int, count: int) -> bool:
        """Have the queue end where messages begin that lie at a CommitLog offset; false when they cannot be there.

        A later message takes the place of an older one: their topic was deleted between the two, and made again.
        """
        end = queue.max_offset
        last = queue.entry(end - 1)
        if last is None:
            return 0 <= first <= _LAST_OFFSET
        if first < end:
            # A single one that does not begin a topic has a wrong number rather.
            if first < 0 or (first and count == 1):
                return False
            queue.cut(first)
        elif first > end:
            if (first - end) * MIN_RECORD_SIZE > offset - sum(last[:2]):
                return False
            hole = bisect_left(self._holes, last[0])
            where = self._holes[hole] if hole < len(self._holes) and self._holes[hole] < offset else last[0]
            # Readers find that no such message is there, and pass on.
            queue.put_entries(end, ENTRY.pack(where, MIN_RECORD_SIZE, 0) * (first - end))
        return True

    def _refuse(self, messages: _Messages, members: Column, why: str) -> None:
        for at in members.tolist():
            offset = int(messages.offsets[at])
            self.passed_over(offset, offset + int(messages.sizes[at]), why)

    def _tags_codes(self, queue: ConsumeQueue, messages: _Messages, members: Sequence[int]) -> list[int]:
        tags = [messages.tags[at] for at in members]
        if queue.schedule:
            return [
                tags_code_of(queue, self._delay_levels, messages.properties[at], tag, int(messages.timestamps[at]))
                for at, tag in zip(members, tags, strict=True)
            ]
        codes = {tag: tags_code_bytes(tag) for tag in set(tags)}
        return [codes[tag] for tag in tags]


def _tag_hashes(queue: ConsumeQueue, tags: Sequence[bytes | None]) -> list[int]:
    hashes = {tag: queue.tag_hash(tag) if tag else NO_TAGS for tag in set(tags)}
    return [hashes[tag] for tag in tags]


def _index_columns(messages: _Messages, chosen: Column, prefix_hashes: Column, tag_hashes: Column) -> IndexColumns:
    unique_keys, keys = messages.unique_keys, messages.keys
    if len(chosen) < len(unique_keys):
        unique_keys, keys = ([values[at] for at in chosen.tolist()] for values in (unique_keys, keys))
    return IndexColumns(
        messages.offsets[chosen].tolist(),
        messages.timestamps[chosen].tolist(),
        prefix_hashes[chosen].tolist(),
        unique_keys,
        keys,
        tag_hashes[chosen].tolist(),
    )
