"""CommitLog files, their written part, and a window of one in memory; read-only."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile
from rocketbroker.common.platform import data_ranges

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class CommitLogFile:
    """CommitLog file: physical offset of its first byte, its size, and the end of its last non-zero byte, in bytes."""

    path: str
    base: int
    size: int
    data_end: int


def open_commit_log(file: CommitLogFile) -> LocalFile:
    """Open a file for reading by position.

    Raises:
        StoreError: It is gone or cannot be read.
    """

    def refusal(error: OSError) -> StoreError:
        hint = " (a broker deletes old files)" if isinstance(error, FileNotFoundError) else ""
        return StoreError(f"cannot read the CommitLog file {file.path}: {error.strerror}{hint}")

    return LocalFile(file.path, refusal)


def measure(base: int, path: Path) -> CommitLogFile:
    """Return the current state of a file; :class:`StoreError` if it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return CommitLogFile(str(path.absolute()), base, size, _data_end(file.fileno(), size))
    except OSError as error:
        raise StoreError(f"cannot read the CommitLog file {path}: {error.strerror}") from error


def _data_end(fd: int, size: int) -> int:
    """Return the end of the last non-zero byte; files are created at full size, so most bytes may be zero."""
    for low, high in reversed(list(data_ranges(fd, 0, size))):
        for start in range((high - 1) // _BLOCK * _BLOCK, low - _BLOCK, -_BLOCK):
            block = np.frombuffer(os.pread(fd, min(_BLOCK, high - start), start), np.uint8)
            if block.any():
                return start + int(block.nonzero()[0][-1]) + 1
    return 0
