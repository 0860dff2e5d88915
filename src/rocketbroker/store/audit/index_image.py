"""An index file as it lies on the disk, for reading only."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_HASH_SLOT_NUM,
    MAX_INDEX_NUM,
    decode_header,
    entry_position,
    file_size,
    slot_position,
)
from rocketbroker.common.errors import StoreError


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
        data = np.fromfile(self.path, np.uint8)
        last = self.header.index_count - 1
        # The entries fill what header and slots leave, so the slots come in steps of five.
        most = (self.size - INDEX_HEADER_SIZE - INDEX_SIZE * (last + 1)) // HASH_SLOT_SIZE
        rest = (self.size - INDEX_HEADER_SIZE) // HASH_SLOT_SIZE % 5
        counts = np.arange(rest or 5, most + 1, 5)
        if last < 1 or not len(counts):
            raise StoreError("its slots cannot be told from its entries; give maxHashSlotNum (-c)")
        at = INDEX_HEADER_SIZE + counts * HASH_SLOT_SIZE + last * INDEX_SIZE
        agree = _int64_at(data, at + 4) == self.header.end_phy_offset
        counts, at = counts[agree], at[agree]
        slots = _int32_at(data, at) % counts
        fitting = counts[_int32_at(data, INDEX_HEADER_SIZE + slots * HASH_SLOT_SIZE) == last]
        if len(fitting) != 1:
            raise StoreError("its slots cannot be told from its entries; give maxHashSlotNum (-c)")
        return int(fitting[0])

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


def index_paths(directory: Path) -> list[Path]:
    """The index files by name, which is by time."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit() and path.is_file())


def _int32_at(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return _gather(data, ">i4", at)


def _int64_at(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return _gather(data, ">i8", at)


def _gather(data: NDArray[np.uint8], kind: str, at: NDArray[np.int64]) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    view: NDArray[Any] = np.ndarray((len(data) - size + 1,), kind, buffer=data, strides=(1,))
    return view[at].astype(np.int64)
