"""Columns of the messages of a CommitLog window, from which queues and index are built (IndexService.buildIndex)."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import (
    Positions,
    distinct_texts,
    index_key_hash_many,
    index_key_hashes,
    java_hash_slices,
    rows_at,
)
from rocketbroker.codec.message.message_const import (
    INNER_BATCH_FLAG,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    deliver_timestamp,
    level_of,
)
from rocketbroker.codec.message.message_properties import split_keys
from rocketbroker.codec.message.property_slices import Slices, property_slices
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.consume_queue_layout import inner_count
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key
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


_BLANK = 0x20


class MessageKeys(NamedTuple):
    """Keys in the order of the index: each message's unique id, its keys, its tags. Columns have the shape (k,).

    ``numbers`` number the messages in their window, ``hashes`` are the ``keyHash`` of an IndexFile, ``of_tags`` marks
    the keys made of tags.
    """

    numbers: Positions
    hashes: NDArray[np.int32]
    of_tags: NDArray[np.bool_]


def keys_of(window: WindowMessages) -> MessageKeys:
    """Return the keys of a window's messages."""
    topics = [topic.decode("utf-8", "replace") for topic in window.topics]
    prefixes = _prefix_hashes([build_key(topic, "") for topic in topics], window)
    tag_prefixes = _prefix_hashes([build_tag_key(topic, "") for topic in topics], window)
    has_unique_key, has_tags = window.unique_keys.lengths > 0, window.tags.lengths > 0
    with_blanks = _with_blanks(window)
    texts = [split_keys(window.value(window.keys, number)) for number in with_blanks.tolist()]
    key_counts = (window.keys.lengths > 0).astype(np.int64)
    single = key_counts > 0
    single[with_blanks] = False
    key_counts[with_blanks] = split_counts = np.array(list(map(len, texts)), np.int64)
    counts = has_unique_key + key_counts + has_tags
    ends = np.cumsum(counts)
    first_keys = ends - counts + has_unique_key
    of_split = np.repeat(first_keys[with_blanks] - np.cumsum(split_counts) + split_counts, split_counts)

    hashes = np.empty(int(counts.sum()), np.int32)
    hashes[(first_keys - 1)[has_unique_key]] = _hashes(window, window.unique_keys, has_unique_key, prefixes)
    hashes[first_keys[single]] = _hashes(window, window.keys, single, prefixes)
    hashes[of_split + np.arange(len(of_split))] = index_key_hash_many(
        list(chain.from_iterable(texts)), np.repeat(prefixes[with_blanks], split_counts)
    )
    hashes[(ends - 1)[has_tags]] = _hashes(window, window.tags, has_tags, tag_prefixes)
    of_tags = np.zeros(len(hashes), np.bool_)
    of_tags[(ends - 1)[has_tags]] = True
    return MessageKeys(np.repeat(np.arange(len(window)), counts), hashes, of_tags)


def _prefix_hashes(prefixes: list[str], window: WindowMessages) -> NDArray[np.int32]:
    return np.array([java_hash(prefix) for prefix in prefixes], np.int32)[window.topic_numbers]


def _hashes(
    window: WindowMessages, slices: Slices, chosen: NDArray[np.bool_], prefixes: NDArray[np.int32]
) -> NDArray[np.int32]:
    data = window.records.data
    return index_key_hashes(java_hash_slices(data, slices.starts[chosen], slices.lengths[chosen], prefixes[chosen]))


def _with_blanks(window: WindowMessages) -> Positions:
    """Return the numbers of the messages whose ``KEYS`` have a blank: they may have several keys, or none."""
    starts, lengths = window.keys
    found = np.zeros(len(lengths), np.bool_)
    for length in np.unique(lengths[lengths > 0]).tolist():
        members = np.flatnonzero(lengths == length)
        found[members] = (rows_at(window.records.data, starts[members], length) == _BLANK).any(axis=1)
    return np.flatnonzero(found)
