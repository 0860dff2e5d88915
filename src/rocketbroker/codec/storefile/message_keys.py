"""Index keys of the messages of a CommitLog window, as columns (IndexService.buildIndex)."""

from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, rows_at
from rocketbroker.codec.message.java_hash_many import index_key_hash_many, index_key_hashes, java_hash_slices
from rocketbroker.codec.message.message_properties import split_keys
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key
from rocketbroker.codec.storefile.window_messages import WindowMessages

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
