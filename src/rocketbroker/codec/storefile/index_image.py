"""Header, slots and entries of an index file, read as numpy columns; the layout is in index_file_layout.py."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    decode_header,
    entry_position,
    slot_position,
)
from rocketbroker.codec.storefile.index_slot_count import ReadAt, find_slot_count
from rocketbroker.codec.storefile.store_file import StoreFile


class IndexImage:
    """Content of an index file at the time of its creation as an object.

    Args:
        path: the file.
        open_file: opens the file.
        slot_count: maxHashSlotNum; 0 to derive it from the file's content.

    Raises:
        CodecError: The file is too short, or its slots cannot be distinguished from its entries.
    """

    def __init__(
        self, path: str, open_file: Callable[[str], AbstractContextManager[StoreFile]], slot_count: int = 0
    ) -> None:
        self.path = path
        self._open = open_file
        with open_file(path) as file:
            self.size = file.size
            self.header = decode_header(file.read_at(0, INDEX_HEADER_SIZE))
            self.slot_count = slot_count or find_slot_count(self.header, self.size, file.read_at)
        #: maxIndexNum: number after the last entry that the file has room for.
        self.entry_count = max(self.size - entry_position(0, self.slot_count), 0) // INDEX_SIZE

    @property
    def used(self) -> int:
        """Number after the last entry that the header counts and the file has room for; the first entry is 1."""
        return min(self.header.index_count, max(self.entry_count, 1))

    def slots(self) -> NDArray[np.int32]:
        """Return the number of the newest entry of each slot."""
        with self._open(self.path) as file:
            data = file.read_at(slot_position(0, self.slot_count), self.slot_count * HASH_SLOT_SIZE)
        return np.frombuffer(data, INDEX_SLOT).astype(np.int32)

    def entries(self, start: int, stop: int) -> NDArray[Any]:
        """Return entries ``start`` to before ``stop`` as INDEX_ENTRY, fewer where the file ends before."""
        with self._open(self.path) as file:
            return read_entries(file, self.slot_count, start, stop)


def read_entries(file: StoreFile, slot_count: int, start: int, stop: int) -> NDArray[Any]:
    """Return entries ``start`` to before ``stop`` as INDEX_ENTRY, fewer where the file ends before."""
    data = file.read_at(entry_position(start, slot_count), max(stop - start, 0) * INDEX_SIZE)
    return np.frombuffer(data, INDEX_ENTRY, len(data) // INDEX_SIZE)


class ChainedEntry(NamedTuple):
    """An entry by its number in the file."""

    number: int
    key_hash: int
    phy_offset: int
    time_diff: int
    previous: int


def newest_entry(read_at: ReadAt, slot_count: int, key_hash: int) -> int:
    """Return the number in a key's slot, 0 for an empty one."""
    return int.from_bytes(read_at(slot_position(key_hash, slot_count), HASH_SLOT_SIZE), "big", signed=True)


def follow_chain(read_at: ReadAt, slot_count: int, number: int, limit: int) -> Iterator[ChainedEntry]:
    """Yield an entry and its predecessors in the slot, newest first, whatever their keys.

    A chain leads to ever smaller numbers; a damaged one is followed no further.

    Args:
        read_at: reader of bytes by position and length.
        slot_count: maxHashSlotNum.
        number: number of the newest entry, see ``newest_entry``.
        limit: number after the last entry; read it after the slot, which may be written at the same time.
    """
    while 0 < number < limit:
        entry = ChainedEntry(number, *ENTRY.unpack(read_at(entry_position(number, slot_count), ENTRY.size)))
        yield entry
        limit, number = number, entry.previous
