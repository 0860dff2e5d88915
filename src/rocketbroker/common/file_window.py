"""CommitLog files, their written part, and a window of one in memory; read-only."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import data_ranges

#: Bytes read at a time; also bounds the rows of a batch.
WINDOW_SIZE = 16 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class CommitLogFile:
    """CommitLog file: physical offset of its first byte, its size, and the end of its last non-zero byte, in bytes."""

    path: str
    base: int
    size: int
    data_end: int


class FileWindow:
    """Bytes ``start`` to ``end`` of a file, copied once, so that checked bytes cannot change while a broker writes.

    A ``with`` block opens and closes the file; :class:`StoreError` if it is gone.
    """

    def __init__(self, file: CommitLogFile, size: int = WINDOW_SIZE) -> None:
        self.file = file
        self.start = self.end = 0
        self.data = b""
        self._size = size
        self._fd = -1

    def __enter__(self) -> "FileWindow":
        try:
            self._fd = os.open(self.file.path, os.O_RDONLY)
        except OSError as error:
            raise StoreError(
                f"cannot read the commit-log file {self.file.path}: {error.strerror} (a broker deletes old files)"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def load(self, position: int, least: int) -> None:
        """Move the window to ``position`` and load at least ``least`` bytes, or all up to the end of the file."""
        self.start = position
        self.data = self._pread(position, max(self._size, least))
        self.end = position + len(self.data)

    def at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the end of the file."""
        if self.start <= position and position + length <= self.end:
            return self.data[position - self.start : position - self.start + length]
        return self._pread(position, length)

    def array(self) -> NDArray[np.uint8]:
        """Return the bytes of the window."""
        return np.frombuffer(self.data, np.uint8)

    def _pread(self, position: int, length: int) -> bytes:
        parts, wanted = [], min(length, self.file.size - position)
        while wanted > 0 and (part := os.pread(self._fd, wanted, position)):
            parts.append(part)
            position, wanted = position + len(part), wanted - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def measure(base: int, path: Path) -> CommitLogFile:
    """Return the current state of a file; :class:`StoreError` if it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return CommitLogFile(str(path.absolute()), base, size, _data_end(file.fileno(), size))
    except OSError as error:
        raise StoreError(f"cannot read the commit-log file {path}: {error.strerror}") from error


def _data_end(fd: int, size: int) -> int:
    """Return the end of the last non-zero byte; files are created at full size, so most bytes may be zero."""
    for low, high in reversed(list(data_ranges(fd, 0, size))):
        for start in range((high - 1) // _BLOCK * _BLOCK, low - _BLOCK, -_BLOCK):
            block = np.frombuffer(os.pread(fd, min(_BLOCK, high - start), start), np.uint8)
            if block.any():
                return start + int(block.nonzero()[0][-1]) + 1
    return 0
