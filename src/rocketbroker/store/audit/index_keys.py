"""The index keys that messages of the CommitLog should have, as numpy columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.java_hash_many import index_key_hash_many, index_key_hashes, java_hash_slices
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key
from rocketbroker.store.audit.window_messages import WindowMessages

# Of a pair, those of its key hash, which has 31.
HASH_BITS = 32
_BLANK = 0x20

Pairs = NDArray[np.int64]


def pairs(numbers: NDArray[np.int64], hashes: NDArray[np.int64] | NDArray[np.int32]) -> Pairs:
    """One number for each pair of a message's number in its window and a key hash."""
    return numbers << HASH_BITS | (hashes.astype(np.int64) & 0xFFFFFFFF)


def among(values: Pairs, known: Pairs) -> NDArray[np.bool_]:
    """Which ``values`` are in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(known, values)
    found: NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == values
    return found


class WindowKeys(NamedTuple):
    """Sorted pairs of message and key hash: ``required`` by unique id and keys, ``allowed`` also by tags.

    Releases before 5.5.0 index no tags. What transactions are prepared or rolled back with need not be there either.
    """

    required: Pairs
    allowed: Pairs


def keys_of(window: WindowMessages) -> WindowKeys:
    """The pairs of a window's messages."""
    topics = [topic.decode("utf-8", "replace") for topic in window.topics]
    prefixes = np.array([java_hash(build_key(topic, "")) for topic in topics], np.int32)[window.topic_numbers]
    tag_prefixes = np.array([java_hash(build_tag_key(topic, "")) for topic in topics], np.int32)
    with_blanks = _with_blanks(window)
    keyed = np.concatenate((_single(window, prefixes, with_blanks), _several(window, prefixes, with_blanks)))
    data, tags = window.records.data, window.tags
    tagged = np.flatnonzero(tags.lengths)
    of_tags = java_hash_slices(
        data, tags.starts[tagged], tags.lengths[tagged], tag_prefixes[window.topic_numbers[tagged]]
    )
    allowed = np.concatenate((keyed, pairs(tagged, index_key_hashes(of_tags))))
    required = keyed[window.dispatched[keyed >> HASH_BITS]]
    return WindowKeys(np.sort(required), np.sort(allowed))


def _single(window: WindowMessages, prefixes: NDArray[np.int32], with_blanks: NDArray[np.bool_]) -> Pairs:
    """Unique ids, and ``KEYS`` without a blank, which are one key."""
    found = []
    for slices, several in ((window.unique_keys, False), (window.keys, with_blanks)):
        numbers = np.flatnonzero((slices.lengths > 0) & ~np.asarray(several))
        hashes = java_hash_slices(
            window.records.data, slices.starts[numbers], slices.lengths[numbers], prefixes[numbers]
        )
        found.append(pairs(numbers, index_key_hashes(hashes)))
    return np.concatenate(found)


def _several(window: WindowMessages, prefixes: NDArray[np.int32], with_blanks: NDArray[np.bool_]) -> Pairs:
    texts: list[bytes] = []
    owners: list[int] = []
    for number in np.flatnonzero(with_blanks).tolist():
        # By blanks alone, as Java does; a tab is part of a key.
        some = [key for key in window.value(window.keys, number).split(b" ") if key]
        texts += some
        owners += [number] * len(some)
    numbers = np.array(owners, np.int64)
    return pairs(numbers, index_key_hash_many(texts, prefixes[numbers])) if texts else numbers


def _with_blanks(window: WindowMessages) -> NDArray[np.bool_]:
    """Which messages' ``KEYS`` have blanks in them."""
    blanks = np.append(np.flatnonzero(window.records.data == _BLANK), len(window.records.data))
    following = blanks[np.searchsorted(blanks, window.keys.starts)]
    found: NDArray[np.bool_] = following < window.keys.starts + window.keys.lengths
    return found
