"""Records of a CommitLog file at known positions, read without most of the bytes between them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_encoder import RECORD_HEADS
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.store_file import StoreFile

# Bytes after the last record, so that the head of a broken one is inside the data.
_MARGIN: Final = RECORD_HEADS[3].size


class ScatteredRecords:
    """Reader of records at ascending positions of one file.

    Args:
        source: the open file.
        base: physical offset of its first byte.
        near: most bytes between records that are read together.
        at_once: bytes to read for a group, or one record if that is longer.
    """

    def __init__(self, source: StoreFile, base: int, near: int, at_once: int) -> None:
        self._source = source
        self._base = base
        self._near = near
        self._at_once = at_once

    def groups(self, positions: Positions, sizes: Positions) -> list[Positions]:
        """Return the numbers of the records, in groups of about ``at_once`` bytes."""
        between = np.diff(positions, append=positions[-1:]) - sizes
        read = sizes + np.where((between > 0) & (between <= self._near), between, 0)
        turns = np.flatnonzero(np.diff((np.cumsum(read) - 1) // self._at_once)) + 1
        return np.split(np.arange(len(positions)), turns) if len(positions) else []

    def claimed(self, positions: Positions, sizes: Positions) -> NDArray[np.bool_]:
        """Return a mask of the records that are short, or whose stored size is long: only these may be given memory."""
        found = np.ones(len(positions), np.bool_)
        for number in np.flatnonzero(sizes > self._at_once).tolist():
            head = self._source.read_at(int(positions[number]), 4)
            found[number] = int.from_bytes(head, "big") == sizes[number]
        return found

    def read(
        self, positions: Positions, sizes: Positions, memory: NDArray[np.uint8] | None = None
    ) -> tuple[Records, NDArray[np.bool_]]:
        """Return the records of a group, and a mask of those that are sound and have their size.

        Args:
            positions: positions of the records in the file.
        """
        ends = np.maximum.accumulate(positions + sizes)
        cuts = np.flatnonzero(positions[1:] - ends[:-1] > self._near) + 1
        firsts, lasts = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(positions)])) - 1
        begins, lengths = positions[firsts], ends[lasts] - positions[firsts]
        length = int(lengths.sum())
        data = np.empty(length + _MARGIN, np.uint8) if memory is None or len(memory) < length + _MARGIN else memory
        data, placed = data[: length + _MARGIN], np.cumsum(lengths) - lengths
        for begin, at, count in zip(begins.tolist(), placed.tolist(), lengths.tolist(), strict=True):
            done = self._source.read_into(begin, data.data[at : at + count])
            data[at + done : at + count] = 0  # the file has become shorter
        data[length:] = 0
        run = np.searchsorted(begins, positions, side="right") - 1
        records = Records(0, data, positions - begins[run] + placed[run])
        return records, records.sound_each(positions + self._base) & (records.total_size == sizes)
