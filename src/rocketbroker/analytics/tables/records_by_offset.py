"""Records of a store by their physical offsets, read without walking the CommitLog."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.record_columns import Records, ScatteredRecords
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.codec.storefile.store_file import offset_files

_FOLDER: Final = "commitlog"
# Largest gap between records that are read together, and the size of a group in bytes.
_NEAR: Final = 64 << 10
_AT_ONCE: Final = 16 << 20


class RecordsByOffset:
    """Reader of the records of a store by their offsets."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._files = offset_files(folder.files(_FOLDER), _FOLDER)

    @property
    def begin(self) -> int:
        """Start offset of the log, 0 without files."""
        return self._files[0].base if self._files else 0

    def groups(self, offsets: Positions, sizes: Positions) -> Iterator[tuple[Records, Positions]]:
        """Yield the valid records at ``offsets`` that are ``sizes`` bytes long, by offset, with their indexes.

        Damaged and missing records are left out. A group is up to 16 MiB, or one record.
        """
        order = np.argsort(offsets, kind="stable")
        offsets, sizes = offsets[order], sizes[order]
        for file in self._files:
            low, high = np.searchsorted(offsets, (file.base, file.base + file.size))
            inside = (offsets[low:high] <= file.base + file.size - sizes[low:high]) & (
                sizes[low:high] >= MIN_RECORD_SIZE
            )
            numbers = low + np.flatnonzero(inside)
            if len(numbers):
                with opened(self._folder, file.path, "commit-log file") as source:
                    reader = ScatteredRecords(source, file.base, _NEAR, _AT_ONCE)
                    numbers = numbers[reader.claimed(offsets[numbers] - file.base, sizes[numbers])]
                    for group in reader.groups(offsets[numbers] - file.base, sizes[numbers]):
                        chosen = numbers[group]
                        records, sound = reader.read(offsets[chosen] - file.base, sizes[chosen])
                        yield Records(0, records.data, records.starts[sound]), order[chosen[sound]]
