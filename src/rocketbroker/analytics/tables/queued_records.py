"""The records that entries of a ConsumeQueue lead to, read from the commit log without going through all of it."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.queues.queued_records import groups
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.mapped_file_name import offset_files
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE

_FOLDER: Final = "commitlog"
# Records are read together that have no more than this between them; so many bytes make a read, and a group.
_NEAR: Final = 64 << 10
_AT_ONCE: Final = 16 << 20
# Behind the last record, so that what a damaged one claims to be in it is inside the bytes.
_MARGIN: Final = bytes(256)


class QueuedRecords:
    """Reads records of a store by their offsets.

    Args:
        folder: the store.
    """

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        files = offset_files(folder.files(_FOLDER), _FOLDER)
        self._bases = np.array([file.base for file in files], np.int64)
        self._ends = np.array([file.base + file.size for file in files], np.int64)
        self._names = {file.base: file.path for file in files}

    @property
    def begin(self) -> int:
        """The offset at which the log begins: what lay before it was removed. 0 for a log without files."""
        return int(self._bases[0]) if len(self._bases) else 0

    def groups(self, offsets: Positions, sizes: Positions) -> Iterator[tuple[Records, Positions]]:
        """The sound records at ascending ``offsets`` that are ``sizes`` bytes long, and which of them these are.

        What is not there, or is damaged, is left out. A group takes 16 MiB or one record.
        """
        candidates = np.flatnonzero(self._inside(offsets, sizes))
        for group in groups(offsets[candidates], sizes[candidates], _NEAR, _AT_ONCE):
            numbers = candidates[group]
            data, starts = self._read(offsets[numbers], sizes[numbers])
            records = Records(0, data, starts)
            sound = records.sound_each(offsets[numbers]) & (records.total_size == sizes[numbers])
            yield Records(0, data, starts[sound]), numbers[sound]

    def _inside(self, offsets: Positions, sizes: Positions) -> NDArray[np.bool_]:
        """Which records lie within one file."""
        found: NDArray[np.bool_] = sizes >= MIN_RECORD_SIZE
        if not len(self._bases):
            return np.zeros(len(offsets), np.bool_)
        files = np.searchsorted(self._bases, offsets, "right") - 1
        found &= (files >= 0) & (offsets <= self._ends[files] - sizes)
        for number in np.flatnonzero(found & (sizes > _AT_ONCE)).tolist():
            # Before memory is taken for it.
            found[number] = int.from_bytes(self._bytes(int(offsets[number]), 4), "big") == int(sizes[number])
        return found

    def _read(self, offsets: Positions, sizes: Positions) -> tuple[NDArray[np.uint8], Positions]:
        """Bytes that hold the records, and where in them each begins."""
        ends = offsets + sizes
        files = np.searchsorted(self._bases, offsets, "right")
        between = offsets[1:] - ends[:-1]
        apart = (between > _NEAR) | (between < 0) | (np.diff(files) != 0)
        cuts = np.flatnonzero(apart) + 1
        pieces: list[bytes] = []
        starts, filled = np.empty(len(offsets), np.int64), 0
        for run in np.split(np.arange(len(offsets)), cuts):
            low, high = int(offsets[run[0]]), int(ends[run].max())
            pieces.append(self._bytes(low, high - low))
            starts[run] = offsets[run] - low + filled
            filled += high - low
        return np.frombuffer(b"".join([*pieces, _MARGIN]), np.uint8), starts

    def _bytes(self, offset: int, length: int) -> bytes:
        base = int(self._bases[np.searchsorted(self._bases, offset, "right") - 1])
        data = self._folder.read(self._names[base], offset - base, length)
        return data.ljust(length, b"\0")  # a file that was cut short meanwhile
