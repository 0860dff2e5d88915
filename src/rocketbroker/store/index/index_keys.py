"""Hashes of the keys that wait for the index, many together, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from rocketbroker.codec.message.message_properties import split_keys
from rocketbroker.store.queue.dispatch_request import NO_TAGS, DispatchRequest, DispatchRun, IndexKeys

# Messages whose keys are hashed at once, or the least number of runs above it.
_AT_ONCE = 8192
_KEY_PREFIX_HASH: Final = attrgetter("key_prefix_hash")


class KeyRuns:
    """Runs of messages that have their unique keys joined, oldest first; ``count`` is the number of messages."""

    def __init__(self) -> None:
        self._runs: list[DispatchRun] = []
        self.count = 0

    def add(self, run: DispatchRun) -> None:
        """Add a run that follows the others."""
        self._runs.append(run)
        self.count += run.message_count

    def hash_some(self) -> IndexKeys:
        """Hash the keys of the oldest runs that are alike, at least one, and remove them."""
        first, count = self._runs[0], 0
        runs: list[DispatchRun] = []
        for run in self._runs:
            if count >= _AT_ONCE or not _alike(first, run):
                break
            runs.append(run)
            count += run.message_count
        keys = _keys_of_runs(runs, count)
        del self._runs[: len(runs)]
        self.count -= count
        return keys


def _alike(one: DispatchRun, other: DispatchRun) -> bool:
    """Return true if the unique keys of both have the same length, and both have tags or none."""
    return _key_length(one) == _key_length(other) and bool(one.tags[0]) == bool(other.tags[0])


def _key_length(run: DispatchRun) -> int:
    return len(run.joined_unique_keys) // run.message_count


def _keys_of_runs(runs: list[DispatchRun], count: int) -> IndexKeys:
    import numpy as np

    from rocketbroker.codec.message.columns import index_key_hashes, java_hash_joined
    from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

    counts = [run.message_count for run in runs]
    keys_each = 2 if runs[0].tags[0] else 1
    hashes = np.empty((count, keys_each), np.int32)
    prefixes = np.repeat(np.array([run.queue.key_prefix_hash for run in runs], np.int32), counts)
    hashes[:, 0] = index_key_hashes(java_hash_joined(b"".join([run.joined_unique_keys for run in runs]), prefixes))
    if keys_each > 1:
        # A message's tags come after its key.
        tag_hashes = [run.queue.tag_hash(tags) if (tags := run.tags[0]) else NO_TAGS for run in runs]
        hashes[:, 1] = np.repeat(np.array(tag_hashes, np.int32), counts)
    entries = np.frombuffer(b"".join([run.entries for run in runs]), CONSUME_QUEUE_ENTRY)
    offsets = entries["commit_log_offset"].astype(np.int64)
    timestamps = np.repeat(np.array([run.store_timestamp for run in runs], np.int64), counts)
    return IndexKeys(
        hashes.reshape(-1),
        np.repeat(offsets, keys_each),
        np.repeat(timestamps, keys_each),
        runs[-1].store_timestamp,
    )


def keys_of(requests: Sequence[DispatchRequest]) -> IndexKeys:
    """Return the keys of messages, those of a message's tags after its others."""
    import numpy as np

    from rocketbroker.codec.message.columns import index_key_hash_many

    queues, _, offsets, _, _, timestamps, found = zip(*requests, strict=True)
    tags, unique_keys, keys, _ = zip(*found, strict=True)
    texts, key_counts = _key_texts(unique_keys, keys)
    prefixes = np.fromiter(map(_KEY_PREFIX_HASH, queues), np.int32, len(queues))
    of_tags = np.array(
        [
            (queue.tag_hashes.get(tag) or queue.tag_hash(tag)) if tag else NO_TAGS
            for queue, tag in zip(queues, tags, strict=True)
        ],
        np.int64,
    )
    tagged = of_tags != NO_TAGS
    of_keys = np.array(key_counts, np.int64)
    counts = of_keys + tagged
    hashes = np.empty(int(counts.sum()), np.int32)
    is_key = np.ones(len(hashes), np.bool_)
    tag_positions = (np.cumsum(counts) - 1)[tagged]
    is_key[tag_positions] = False
    hashes[tag_positions] = of_tags[tagged]
    hashes[is_key] = index_key_hash_many(texts, np.repeat(prefixes, of_keys))
    return IndexKeys(
        hashes,
        np.repeat(np.array(offsets, np.int64), counts),
        np.repeat(np.array(timestamps, np.int64), counts),
        timestamps[-1],
    )


def _key_texts(
    unique_keys: Sequence[bytes | None], keys: Sequence[bytes | None]
) -> tuple[Sequence[bytes], Sequence[int]]:
    """Return the keys of messages in order, each message's unique key first, and the number per message."""
    if not any(keys) and all(unique_keys):
        return unique_keys, [1] * len(keys)  # type: ignore[return-value]  # none of them is None
    texts: list[bytes] = []
    if all(unique_keys) and all(keys) and b" " not in b"".join(keys):  # type: ignore[arg-type]  # none of them is None
        texts = [b""] * (2 * len(keys))
        texts[0::2], texts[1::2] = unique_keys, keys  # type: ignore[assignment]  # no None here either
        return texts, [2] * len(keys)
    counts: list[int] = []
    for unique_key, some in zip(unique_keys, keys, strict=True):
        before = len(texts)
        if unique_key:
            texts.append(unique_key)
        if some:
            texts += split_keys(some)
        counts.append(len(texts) - before)
    return texts, counts
