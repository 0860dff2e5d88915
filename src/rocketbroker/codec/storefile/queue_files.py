"""Entries of one ConsumeQueue or BatchConsumeQueue, read from its files as numpy columns.

The layout of an entry is in consume_queue_layout.py. Entry n begins at byte n * unit of the queue's files taken as one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.consume_queue_layout import FILLER_SIZE, SIZE_POSITION
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.store_file import OffsetFile, StoreFile

#: Stored entries, CONSUME_QUEUE_ENTRY or BATCH_CONSUME_QUEUE_ENTRY.
Entries = NDArray[Any]
#: Entry layout by the folder of a store for that kind of queue.
CONSUME_QUEUE: Final = "consumequeue"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
ENTRIES: Final = {CONSUME_QUEUE: CONSUME_QUEUE_ENTRY, BATCH_CONSUME_QUEUE: BATCH_CONSUME_QUEUE_ENTRY}
_AT_ONCE: Final = 1 << 18


class QueueFiles:
    """Entries of a queue by their number.

    Args:
        files: the queue's files by offset.
        open_file: opens a file by its path.
        layout: the layout of an entry, a value of ``ENTRIES``.
    """

    def __init__(
        self,
        files: Sequence[OffsetFile],
        open_file: Callable[[str], AbstractContextManager[StoreFile]],
        layout: np.dtype[Any],
    ) -> None:
        self.files = files
        self.layout = layout
        self._open = open_file
        self._unit = layout.itemsize

    @property
    def first(self) -> int:
        """Number of the first entry with room in the files, 0 without files."""
        return self.files[0].base // self._unit if self.files else 0

    @property
    def end(self) -> int:
        """Number after the last entry with room in the files."""
        return max((self._numbers(file).stop for file in self.files), default=0)

    @property
    def file_size(self) -> int:
        """Bytes that most files have, 0 without files."""
        sizes = [file.size for file in self.files]
        return max(set(sizes), key=sizes.count, default=0)

    @property
    def capacity(self) -> int:
        """Number of entries with room in the files."""
        return sum(len(self._numbers(file)) for file in self.files)

    def _numbers(self, file: OffsetFile) -> range:
        first = file.base // self._unit
        return range(first, first + file.size // self._unit)

    def gaps(self) -> Iterator[tuple[OffsetFile, OffsetFile]]:
        """Yield neighbouring files with a gap between them."""
        return ((file, after) for file, after in pairwise(self.files) if file.base + file.size != after.base)

    def pieces(self, start: int = 0, stop: int | None = None, at_once: int = _AT_ONCE) -> Iterator[tuple[int, Entries]]:
        """Yield runs of entries from number ``start`` to before ``stop``, each with the number of its first entry.

        A run has at most ``at_once`` entries, all from one file, in memory that the next run reuses. It is shorter
        where a file became shorter.
        """
        memory = np.empty(0, self.layout)
        for file in self.files:
            numbers = self._numbers(file)
            wanted = range(max(start, numbers.start), numbers.stop if stop is None else min(stop, numbers.stop))
            if not wanted:
                continue
            if len(memory) < min(at_once, len(wanted)):
                memory = np.empty(min(at_once, len(wanted)), self.layout)
            with self._open(file.path) as source:
                for begin in range(wanted.start, wanted.stop, at_once):
                    block = memory[: wanted.stop - begin]
                    count = self._fill(source, begin - numbers.start, block)
                    yield begin, block[:count]

    def read(self, start: int, stop: int) -> Entries:
        """Return the entries from number ``start`` to before ``stop``, zeros where no file has them."""
        found = np.zeros(stop - start, self.layout)
        for file in self.files:
            numbers = self._numbers(file)
            low, high = max(start, numbers.start), min(stop, numbers.stop)
            if low < high:
                with self._open(file.path) as source:
                    self._fill(source, low - numbers.start, found[low - start : high - start])
        return found

    def _fill(self, source: StoreFile, number: int, block: Entries) -> int:
        """Read entries of a file from its entry ``number`` on and return how many there are."""
        return source.read_into(number * self._unit, block.view(np.uint8).data) // self._unit

    def last_written(self) -> tuple[int, Entries] | None:
        """Return number and entry (an array of one) of the last entry by some twenty reads; ``None`` without one.

        The reads assume that nothing follows an unwritten place of a file.
        """
        for file in reversed(self.files):
            numbers = self._numbers(file)
            with self._open(file.path) as source:
                written = bisect_left(range(len(numbers)), True, key=lambda each: self._is_unwritten(source, each))
                last = np.empty(1, self.layout)
                if written and self._fill(source, written - 1, last):
                    return numbers[written - 1], last
        return None

    def _is_unwritten(self, source: StoreFile, number: int) -> bool:
        return not any(source.read_at(number * self._unit + SIZE_POSITION, 4))


def is_entry(entries: Entries) -> NDArray[np.bool_]:
    """Return a mask of the places with an entry, neither unwritten nor a filler.

    A broker writes no size below 0: such an entry is damaged, but exists.
    """
    found: NDArray[np.bool_] = (entries["size"] != 0) & ~is_filler_entry(entries)
    return found


def is_filler_entry(entries: Entries) -> NDArray[np.bool_]:
    """Return a mask of the entries that only fill the space before a queue's first one."""
    found: NDArray[np.bool_] = (entries["size"] == FILLER_SIZE) & (entries["commit_log_offset"] == 0)
    return found


def queue_offsets(entries: Entries, numbers: Positions) -> Positions:
    """Return the queue offset of each entry: its number, or in a BatchConsumeQueue that of its first message."""
    if entries.dtype == BATCH_CONSUME_QUEUE_ENTRY:
        return entries["msg_base_offset"].astype(np.int64)
    return numbers
