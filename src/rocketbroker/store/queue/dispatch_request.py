"""Messages that are in the log and not yet in their queue (org.apache.rocketmq.store.DispatchRequest)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from rocketbroker.codec.message.message_properties import FoundProperties
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Queue, queue offset, CommitLog offset, size, tags code, store time in ms, and index keys. A bare tuple, because one is
# made for each message.
DispatchRequest = tuple[ConsumeQueueInterface, int, int, int, int, int, FoundProperties]

# Replaces the key hash of the tags in a message without tags; hashes are not negative.
NO_TAGS = -1
_TAGS_CODE = itemgetter(2)


class DispatchRun(NamedTuple):
    """Consecutive messages of one queue: the fields of ``DispatchRequest`` as columns.

    ``entries`` are those of the queue. ``joined_unique_keys`` as in ``codec.message.message_properties.FoundColumns``;
    ``unique_keys`` may be empty if it is not.
    """

    queue: ConsumeQueueInterface
    queue_offset: int
    entries: bytes
    store_timestamp: int
    tags: Sequence[bytes | None]
    unique_keys: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    joined_unique_keys: bytes = b""

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return len(self.entries) // ENTRY.size

    def requests(self) -> Iterable[DispatchRequest]:
        """Yield the messages one by one."""
        count = self.message_count
        numbers = range(self.queue_offset, self.queue_offset + count)
        queues, times = repeat(self.queue, count), repeat(self.store_timestamp, count)
        found = zip(self.tags, self.each_unique_key(), self.keys, repeat(False, count), strict=True)
        offsets, sizes, tags_codes = zip(*ENTRY.iter_unpack(self.entries), strict=True)
        return zip(queues, numbers, offsets, sizes, tags_codes, times, found, strict=True)

    def each_unique_key(self) -> Sequence[bytes | None]:
        """Return the unique key of each message."""
        joined = self.joined_unique_keys
        if not joined:
            return self.unique_keys
        length = len(joined) // self.message_count
        return [joined[at : at + length] for at in range(0, len(joined), length)]

    def tags_codes(self) -> Iterable[int]:
        """Yield the tags code of each message."""
        return map(_TAGS_CODE, ENTRY.iter_unpack(self.entries))


class IndexKeys(NamedTuple):
    """Keys to enter into the index, as columns, oldest message first; shape (k,).

    ``hashes`` are the ``keyHash`` of an IndexFile, ``offsets`` and ``timestamps`` belong to the messages;
    ``stored_until`` is the store time in ms of the last message, which may have no key.
    """

    hashes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    stored_until: int

    def before(self, physical_offset: int) -> IndexKeys:
        """Return the keys of messages before a CommitLog offset."""
        count = int(self.offsets.searchsorted(physical_offset))
        stored_until = int(self.timestamps[count - 1]) if count else 0
        return IndexKeys(self.hashes[:count], self.offsets[:count], self.timestamps[:count], stored_until)

    def behind(self, count: int) -> IndexKeys:
        """Return all keys but the first ``count``."""
        return IndexKeys(self.hashes[count:], self.offsets[count:], self.timestamps[count:], self.stored_until)
