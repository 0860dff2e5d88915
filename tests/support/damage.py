"""Damages the files of a store, and reads it as a consumer does."""

import os
from collections.abc import Callable
from pathlib import Path

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from tests.support.stores import fetch, pulled


class Place:
    """Bytes of a file; changed under the mapping, as a disk would before it is mapped."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position

    def write(self, data: bytes, at: int = 0) -> None:
        """Overwrite bytes at a position."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, self.position + at)

    def read(self, size: int, at: int = 0) -> bytes:
        """Return the current bytes."""
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, self.position + at)

    def flip(self, bit: int) -> None:
        """Change one bit, counted from the place on."""
        (before,) = self.read(1, bit // 8)
        self.write(bytes([before ^ 1 << bit % 8]), bit // 8)


def overwrite(file: MappedFile, position: int, data: bytes) -> None:
    """Put bytes in place of what a mapped file holds."""
    with file.writing(position, position + len(data)) as view:
        view[:] = data


def entry_place(store: MessageStore, number: int, queue_id: int = 0) -> Place:
    """Return the place of the entry of a message of ``Topic``."""
    file = store.queues.queues_of("Topic")[queue_id].queue.find(number * 20)
    assert file is not None
    return Place(file.path, number * 20 - file.file_from_offset)


def record_place(store: MessageStore, number: int, queue_id: int = 0) -> tuple[Place, int]:
    """Return the place and size of the record of a message of ``Topic``."""
    entry = store.queues.queues_of("Topic")[queue_id].entry(number)
    assert entry is not None
    file = store.commit_log.queue.find(entry[0])
    assert file is not None
    return Place(file.path, entry[0] - file.file_from_offset), entry[1]


def pulls(
    store: MessageStore,
    offset: int = 0,
    end: int | None = None,
    matches: Callable[[int], bool] | None = None,
    queue_id: int = 0,
    max_msgs: int = 32,
    max_bytes: int = 1 << 20,
) -> list[tuple[int, bytes]]:
    """Return the queue offsets and bodies of all messages that a consumer of a queue of ``Topic`` gets."""
    found: list[tuple[int, bytes]] = []
    end = store.queues.max_offset_in_queue("Topic", queue_id) if end is None else end
    while offset < end:
        result = fetch(store, "Topic", queue_id, offset, max_msgs, max_bytes, matches=matches)
        records = pulled(result)
        assert len(records) == result.total_size
        messages = decode_messages(records, decompress=False)
        assert len(messages) == result.message_count
        found += [(one.queue_offset, one.body) for one in messages if one.queue_offset < end]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found
