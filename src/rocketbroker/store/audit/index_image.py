"""An index file as it lies on the disk, for reading only."""

from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_HASH_SLOT_NUM,
    MAX_INDEX_NUM,
    decode_header,
    entry_position,
    file_size,
    slot_position,
)
from rocketbroker.codec.storefile.index_slot_count import find_slot_count
from rocketbroker.common.errors import CodecError, StoreError


class IndexImage:
    """An index file.

    Args:
        path: the file.
        slot_count: maxHashSlotNum; ``None`` has it found out from what the file holds.

    Raises:
        StoreError: it is too short, or nobody can tell its slots from its entries.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, slot_count: int | None = None) -> None:
        self.path = path
        self.size = path.stat().st_size
        if self.size < INDEX_HEADER_SIZE:
            raise StoreError(f"{self.size} bytes are no index file; its header alone takes {INDEX_HEADER_SIZE}")
        with path.open("rb") as file:
            self.header = decode_header(file.read(INDEX_HEADER_SIZE))
        self.slot_count = self._slot_count() if slot_count is None else slot_count
        self.entry_count = (self.size - entry_position(0, self.slot_count)) // INDEX_SIZE

    def _slot_count(self) -> int:
        """maxHashSlotNum: RocketMQ's default if the size allows, else the one that slots and last entry agree with."""
        if self.size == file_size(MAX_HASH_SLOT_NUM, MAX_INDEX_NUM):
            return MAX_HASH_SLOT_NUM
        try:
            with self.path.open("rb") as file:
                return find_slot_count(self.header, self.size, partial(_read_at, file))
        except CodecError as error:
            raise StoreError(f"{error}; give maxHashSlotNum (-c)") from error

    @property
    def used(self) -> int:
        """Entries 1 to before this one are said to be there, as far as the file has room."""
        return min(self.header.index_count, self.entry_count)

    def slots(self) -> NDArray[np.int32]:
        """The newest entry of each slot."""
        found = np.fromfile(self.path, INDEX_SLOT, self.slot_count, offset=slot_position(0, self.slot_count))
        return found.astype(np.int32)

    def entries(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Entries ``start`` to before ``stop``, all that are used if ``None``, as INDEX_ENTRY."""
        upto = self.used if stop is None else min(stop, self.entry_count)
        at = entry_position(start, self.slot_count)
        return np.fromfile(self.path, INDEX_ENTRY, max(upto - start, 0), offset=at)


def _read_at(file: BinaryIO, position: int, length: int) -> bytes:
    file.seek(position)
    return file.read(length)


def index_paths(directory: Path) -> list[Path]:
    """The index files by name, which is by time."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit() and path.is_file())
