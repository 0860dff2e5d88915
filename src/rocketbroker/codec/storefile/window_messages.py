"""Columns of the messages of a CommitLog window, from which queues and index are built."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, distinct_texts
from rocketbroker.codec.message.delay_levels import deliver_timestamp, level_of
from rocketbroker.codec.message.java_hash_many import java_hash_slices
from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.message_sys_flag import (
    INNER_BATCH_FLAG,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.message.property_slices import Slices, property_slices
from rocketbroker.codec.storefile.inner_batch import inner_count
from rocketbroker.codec.storefile.record_columns import Records

_NAMES = (
    PROPERTY_TAGS.encode(),
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode(),
    PROPERTY_KEYS.encode(),
    PROPERTY_DELAY_TIME_LEVEL.encode(),
)


class WindowMessages:
    """The messages of ``records``, in the order of the log; columns have the shape (n,)."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.offsets: Positions = records.starts + records.base
        self.tags, self.unique_keys, self.keys, self.delay_levels = property_slices(
            records.data, records.properties_at, records.properties_length, *_NAMES
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def store_timestamps(self) -> Positions:
        """Store times in ms."""
        return self.records.field("store_timestamp").astype(np.int64)

    @cached_property
    def queue_ids(self) -> Positions:
        """Queue numbers."""
        return self.records.field("queue_id").astype(np.int64)

    @cached_property
    def queue_offsets(self) -> Positions:
        """Queue offsets."""
        return self.records.field("queue_offset").astype(np.int64)

    @cached_property
    def indexed(self) -> NDArray[np.bool_]:
        """Mask of the messages to index: all but half messages and rollbacks."""
        kind = self.records.sys_flag & TRANSACTION_ROLLBACK_TYPE
        found: NDArray[np.bool_] = (kind != TRANSACTION_PREPARED_TYPE) & (kind != TRANSACTION_ROLLBACK_TYPE)
        return found

    @cached_property
    def are_batches(self) -> NDArray[np.bool_]:
        """Mask of the inner batches: records of several messages, for a BatchConsumeQueue."""
        found: NDArray[np.bool_] = self.records.sys_flag & INNER_BATCH_FLAG != 0
        return found

    def inner_counts(self, members: Positions) -> Positions:
        """Return the number of messages in each of some records."""
        flags = self.records.sys_flag
        starts = self.records.properties_at
        ends = starts + self.records.properties_length
        data = self.records.data
        counts = [
            inner_count(int(flags[at]), data[int(starts[at]) : int(ends[at])].tobytes()) if self.are_batches[at] else 1
            for at in members.tolist()
        ]
        return np.array(counts, np.int64)

    @cached_property
    def tags_codes(self) -> Positions:
        """Hashes of their tags."""
        return java_hash_slices(self.records.data, *self.tags).astype(np.int64)

    @cached_property
    def _topics(self) -> tuple[list[bytes], NDArray[np.int64]]:
        return distinct_texts(self.records.data, self.records.topic_at, self.records.topic_length)

    @property
    def topics(self) -> list[bytes]:
        """The different topics, as they are stored."""
        return self._topics[0]

    @property
    def topic_numbers(self) -> NDArray[np.int64]:
        """The number of each message's topic in ``topics``."""
        return self._topics[1]

    def by_queue(self) -> Iterator[tuple[bytes, int, Positions]]:
        """Yield topic and queue number of each queue, and the numbers of its messages, oldest first."""
        members = np.flatnonzero(self.indexed)
        queues = (self.topic_numbers << 32 | self.queue_ids & 0xFFFFFFFF)[members]
        order = np.argsort(queues, kind="stable")
        cuts = np.flatnonzero(np.diff(queues[order])) + 1
        for group in np.split(members[order], cuts) if len(members) else ():
            yield self.topics[self.topic_numbers[group[0]]], int(self.queue_ids[group[0]]), group

    def are_before(self, marks: Mapping[str, int]) -> NDArray[np.bool_]:
        """Return a mask of the messages before the physical offset that ``marks`` has for their topic."""
        of_topics = [marks.get(topic.decode("utf-8", "replace"), 0) for topic in self.topics]
        found: NDArray[np.bool_] = self.offsets < np.array(of_topics, np.int64)[self.topic_numbers]
        return found

    def value(self, slices: Slices, number: int) -> bytes:
        """Return a property of one message, empty if it has none."""
        start = int(slices.starts[number])
        return self.records.data[start : start + int(slices.lengths[number])].tobytes()


def due_times(levels: dict[int, int], window: WindowMessages, members: Positions) -> Positions:
    """Return the delivery times in ms of the messages numbered ``members``: the tags codes of their queue entries.

    Args:
        levels: ms by level.
        window: the messages.
        members: numbers of messages, shape (n,).
    """
    found = [level_of(window.value(window.delay_levels, member)) for member in members.tolist()]
    stored = window.store_timestamps[members].tolist()
    times = [deliver_timestamp(levels, level, at) for level, at in zip(found, stored, strict=True)]
    return np.array(times, np.int64)
