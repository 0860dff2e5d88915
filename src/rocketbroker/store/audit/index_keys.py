"""The index keys that messages of the CommitLog should have, as numpy columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.message_keys import keys_of
from rocketbroker.codec.storefile.window_messages import WindowMessages

# Bits of the key hash in a pair, which has 31.
HASH_BITS = 32

Pairs = NDArray[np.int64]


def pairs(numbers: NDArray[np.int64], hashes: NDArray[np.int64] | NDArray[np.int32]) -> Pairs:
    """Pack a message's number in its window and a key hash into one number each."""
    return numbers << HASH_BITS | (hashes.astype(np.int64) & 0xFFFFFFFF)


def among(values: Pairs, known: Pairs) -> NDArray[np.bool_]:
    """Return a mask of the ``values`` that are in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(known, values)
    found: NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == values
    return found


class WindowKeys(NamedTuple):
    """Sorted pairs of message and key hash: ``required`` by unique id and keys, ``allowed`` also by tags.

    Releases before 5.5.0 index no tags. Half messages and rollbacks of transactions need not be there either.
    """

    required: Pairs
    allowed: Pairs


def window_keys(window: WindowMessages) -> WindowKeys:
    """Return the pairs of a window's messages."""
    keys = keys_of(window)
    allowed = pairs(keys.numbers, keys.hashes)
    required = allowed[~keys.of_tags & (window.indexed & ~window.are_batches)[keys.numbers]]
    return WindowKeys(np.sort(required), np.sort(allowed))
