"""Keys of batches that wait for the index: hashed together, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketbroker.store.queue.dispatch_request import NO_TAGS, DispatchRun, IndexKeys

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Messages whose keys are hashed at once, or the least number of runs above it.
_AT_ONCE = 8192


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
        keys = _keys_of(runs, count)
        del self._runs[: len(runs)]
        self.count -= count
        return keys


def _alike(one: DispatchRun, other: DispatchRun) -> bool:
    """Return true if the unique keys of both have the same length, and both have tags or none."""
    return _key_length(one) == _key_length(other) and bool(one.tags[0]) == bool(other.tags[0])


def _key_length(run: DispatchRun) -> int:
    return len(run.joined_unique_keys) // run.message_count


def _keys_of(runs: list[DispatchRun], count: int) -> IndexKeys:
    import numpy as np

    from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

    counts = [run.message_count for run in runs]
    keys_each = 2 if runs[0].tags[0] else 1
    hashes = np.empty((count, keys_each), np.int32)
    prefixes = np.repeat(np.array([run.queue.key_prefix_hash for run in runs], np.int32), counts)
    hashes[:, 0] = _unique_key_hashes(runs, prefixes)
    if keys_each > 1:
        # A message's tags come after its key.
        hashes[:, 1] = np.repeat(np.array([_tag_hash(run) for run in runs], np.int32), counts)
    entries = np.frombuffer(b"".join([run.entries for run in runs]), CONSUME_QUEUE_ENTRY)
    offsets = entries["commit_log_offset"].astype(np.int64)
    timestamps = np.repeat(np.array([run.store_timestamp for run in runs], np.int64), counts)
    return IndexKeys(
        hashes.reshape(-1),
        np.repeat(offsets, keys_each),
        np.repeat(timestamps, keys_each),
        runs[-1].store_timestamp,
    )


def _unique_key_hashes(runs: list[DispatchRun], prefixes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    from rocketbroker.codec.message.columns import index_key_hashes, java_hash_joined

    return index_key_hashes(java_hash_joined(b"".join([run.joined_unique_keys for run in runs]), prefixes))


def _tag_hash(run: DispatchRun) -> int:
    tags = run.tags[0]
    return run.queue.tag_hash(tags) if tags else NO_TAGS
