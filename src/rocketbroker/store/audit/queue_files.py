"""Files of one queue's folder; they are opened on demand, because a store may have tens of thousands."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rocketbroker.codec.storefile.mapped_file_name import offset_files, offset_to_file_name
from rocketbroker.codec.storefile.queue_files import Entries, QueueFiles
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile

# 20 MB of a ConsumeQueue.
_AT_ONCE = 1 << 20


class QueueFolder(QueueFiles):
    """Entries in ``consumequeue/<topic>/<queueId>``, or in a folder of ``batchconsumequeue``.

    Args:
        directory: the folder.
        layout: see ``QueueFiles``.
    """

    def __init__(self, directory: Path, layout: np.dtype[Any]) -> None:
        sizes = {path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()}
        files = [file for file in offset_files(sizes, str(directory)) if file.size]
        super().__init__(files, open_local, layout)
        self.directory = directory

    def place(self, number: int) -> tuple[Path, int]:
        """Return file and position of an entry."""
        at = number * self.layout.itemsize
        file_size = self.file_size
        position = at % file_size if file_size else at
        return self.directory / offset_to_file_name(at - position), position

    def chunks(self, start: int = 0) -> Iterator[tuple[int, Entries]]:
        """Yield all entries with room in the files from a number on, in chunks with the number of their first entry."""
        for begin in range(max(self.first, start), self.end, _AT_ONCE):
            yield begin, self.read(begin, min(begin + _AT_ONCE, self.end))


def open_local(path: str) -> LocalFile:
    """Open a local file."""
    return LocalFile(path, partial(_unreadable, path))


def _unreadable(path: str, error: OSError) -> StoreError:
    return StoreError(f"cannot read {path}: {error.strerror}")
