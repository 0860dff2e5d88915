"""Header, slots and entries of an index file, read as numpy columns; the layout is in index_file_layout.py."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_HASH_SLOT_NUM,
    IndexHeader,
    decode_header,
    entry_position,
    file_size,
    slot_position,
)
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import CodecError

# Number of slots of an index file. The file does not store it, and slots and entries cannot be read without it.
#
# This is separate from the layout because importing numpy takes longer than a broker may take to start.

# Entries fill the file after header and slots, so that slot counts come in steps of the length of an entry.
_STEP: Final = INDEX_SIZE // HASH_SLOT_SIZE
# Number of entries or slots read at once.
_AT_ONCE: Final = 1 << 16
# Most slot counts at which the last entry has the right offset: a message has fewer keys.
_MOST: Final = 1 << 14

#: Returns bytes by position and length, fewer at the file's end.
ReadAt = Callable[[int, int], bytes]


def find_slot_count(header: IndexHeader, size: int, read_at: ReadAt) -> int:
    """Return maxHashSlotNum of a file of ``size`` bytes; RocketMQ's default if the size matches it.

    Otherwise it is the only number on which the slots and the last entry agree. With a wrong number, other bytes are
    taken for the last entry: by chance an entry of the same message whose slot would have the right value. Then all
    entries decide. The file is read in pieces of a few MiB.

    Raises:
        CodecError: Several numbers are possible, or none; the broker's setting ``maxHashSlotNum`` has the right one.
    """
    if size == file_size():
        return MAX_HASH_SLOT_NUM  # nearly every file
    last = header.index_count - 1
    most = (size - INDEX_HEADER_SIZE - INDEX_SIZE * (last + 1)) // HASH_SLOT_SIZE
    first = (size - INDEX_HEADER_SIZE) // HASH_SLOT_SIZE % _STEP or _STEP
    fitting = list[int]()
    if last >= 1:
        counts = range(first, most + 1, _STEP)
        for number, (count, key_hash) in enumerate(_with_offset(header.end_phy_offset, last, counts, read_at)):
            if number == _MOST:
                raise CodecError("its slots cannot be told from its entries")
            if _slot(read_at, key_hash, count) == last:
                fitting.append(count)
    wrong = [_wrong_slots(read_at, count, last) for count in fitting] if len(fitting) > 1 else [0] * len(fitting)
    if not wrong or wrong.count(min(wrong)) > 1:
        raise CodecError("its slots cannot be told from its entries")
    return fitting[wrong.index(min(wrong))]


def _with_offset(offset: int, last: int, counts: range, read_at: ReadAt) -> Iterator[tuple[int, int]]:
    """Yield those of ``counts`` at which entry ``last`` has the physical offset ``offset``, and its key hash."""
    # Unwritten space looks like entries of hash 0 for a message at offset 0; its slot is the first in any case.
    zero_hash = _slot(read_at, 0, counts[0]) == last if counts else False
    for begin in range(0, len(counts), _AT_ONCE):
        part = counts[begin : begin + _AT_ONCE]
        # With one more step of the slot count, the entry is one further on.
        entries = _values(read_at, INDEX_ENTRY, entry_position(last, part[0]), len(part))
        of_message = (entries["phy_offset"] == offset) & (zero_hash | (entries["key_hash"] != 0))
        for number in np.flatnonzero(of_message).tolist():
            yield part[number], int(entries["key_hash"][number])


def _slot(read_at: ReadAt, key_hash: int, count: int) -> int:
    return int.from_bytes(read_at(slot_position(key_hash, count), HASH_SLOT_SIZE), "big", signed=True)


def _wrong_slots(read_at: ReadAt, count: int, last: int) -> int:
    """Count the slots of ``count`` that do not lead to the newest of their entries among 1 to ``last``."""
    expected = np.zeros(count, np.int32)
    for begin in range(1, last + 1, _AT_ONCE):
        entries = _values(read_at, INDEX_ENTRY, entry_position(begin, count), min(_AT_ONCE, last + 1 - begin))
        numbers = np.arange(begin, begin + len(entries))
        expected[entries["key_hash"].astype(np.int64) % count] = numbers  # numpy keeps the last of several
    wrong = 0
    for begin in range(0, count, _AT_ONCE):
        slots = _values(read_at, INDEX_SLOT, INDEX_HEADER_SIZE + begin * HASH_SLOT_SIZE, min(_AT_ONCE, count - begin))
        wrong += int(np.count_nonzero(expected[begin : begin + len(slots)] != slots))
    return wrong


def _values(read_at: ReadAt, kind: np.dtype[Any], position: int, count: int) -> NDArray[Any]:
    """Return consecutive values, fewer if the file became shorter."""
    data = read_at(position, count * kind.itemsize)
    return np.frombuffer(data, kind, len(data) // kind.itemsize)


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
