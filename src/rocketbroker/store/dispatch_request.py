"""Messages that are in the log and not yet in their queue (org.apache.rocketmq.store.DispatchRequest)."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from rocketbroker.codec.message.message_properties import FoundProperties
from rocketbroker.store.consume_queue import ConsumeQueue

# Queue, queue offset, CommitLog offset, size, tags code, store time in ms, and by what it is found. A bare tuple, since
# one is made for each message.
DispatchRequest = tuple[ConsumeQueue, int, int, int, int, int, FoundProperties]

# Instead of the key hash of its tags, for a message without; hashes are not negative.
NO_TAGS = -1


class DispatchRun(NamedTuple):
    """Messages of one queue that follow each other: by column what ``DispatchRequest`` has by message."""

    queue: ConsumeQueue
    queue_offset: int
    physical_offsets: Sequence[int]
    sizes: Sequence[int]
    tags_codes: Sequence[int]
    store_timestamp: int
    tags: Sequence[bytes | None]
    unique_keys: Sequence[bytes | None]
    keys: Sequence[bytes | None]

    def requests(self) -> Iterable[DispatchRequest]:
        """One by one."""
        count = len(self.physical_offsets)
        numbers = range(self.queue_offset, self.queue_offset + count)
        queues, times = repeat(self.queue, count), repeat(self.store_timestamp, count)
        found = zip(self.tags, self.unique_keys, self.keys, repeat(False, count), strict=True)
        return zip(queues, numbers, self.physical_offsets, self.sizes, self.tags_codes, times, found, strict=True)


class IndexColumns(NamedTuple):
    """What the index has to know of messages, by column and oldest first.

    ``prefix_hashes`` are those of what each key begins with (``ConsumeQueue.key_prefix_hash``), ``tag_hashes`` the key
    hashes of the tags' entries, ``NO_TAGS`` for a message without.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    prefix_hashes: Sequence[int]
    unique_keys: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    tag_hashes: Sequence[int]
