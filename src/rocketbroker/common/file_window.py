"""Commit-log files, how far they are written, and a stretch of one in memory; nothing here writes."""

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
    """A commit-log file: ``base`` is the physical offset of its first byte, ``size`` its length,
    ``data_end`` the position behind its last byte that is not zero. All in bytes."""

    path: str
    base: int
    size: int
    data_end: int


class FileWindow:
    """Bytes ``start`` to ``end`` of an open file, copied once, so that what was checked is what is delivered even if a
    broker is writing. The file is opened on entry of the ``with`` block; :class:`StoreError` when it is gone."""

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
        """Move to ``position`` and hold at least ``least`` bytes from there, as far as the file has them."""
        self.start = position
        self.data = self._pread(position, max(self._size, least))
        self.end = position + len(self.data)

    def at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``, fewer at the file's end; from memory where the window holds them."""
        if self.start <= position and position + length <= self.end:
            return self.data[position - self.start : position - self.start + length]
        return self._pread(position, length)

    def array(self) -> NDArray[np.uint8]:
        """The window's bytes."""
        return np.frombuffer(self.data, np.uint8)

    def _pread(self, position: int, length: int) -> bytes:
        parts, wanted = [], min(length, self.file.size - position)
        while wanted > 0 and (part := os.pread(self._fd, wanted, position)):
            parts.append(part)
            position, wanted = position + len(part), wanted - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def measure(base: int, path: Path) -> CommitLogFile:
    """The file as it is now; :class:`StoreError` when it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return CommitLogFile(str(path.absolute()), base, size, _data_end(file.fileno(), size))
    except OSError as error:
        raise StoreError(f"cannot read the commit-log file {path}: {error.strerror}") from error


def _data_end(fd: int, size: int) -> int:
    """Position behind the last byte that is not zero; files are created at full size, so most of one may be zeros."""
    for low, high in reversed(list(data_ranges(fd, 0, size))):
        for start in range((high - 1) // _BLOCK * _BLOCK, low - _BLOCK, -_BLOCK):
            block = np.frombuffer(os.pread(fd, min(_BLOCK, high - start), start), np.uint8)
            if block.any():
                return start + int(block.nonzero()[0][-1]) + 1
    return 0
