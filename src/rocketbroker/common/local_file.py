"""Store files of this machine, open for reading by position, and the processes that hold a lock on one."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from rocketbroker.common import platform
from rocketbroker.common.errors import StoreError
from rocketbroker.common.platform import data_ranges

#: Makes the error to raise if the system cannot open or read a file.
Refusal = Callable[[OSError], StoreError]


class LocalFile:
    """A file by its descriptor, which it owns and closes at the end of a ``with`` block or by ``close``.

    It implements ``codec.storefile.store_file.StoreFile``.

    Args:
        path: the file.
        refusal: makes the error to raise if the file cannot be opened or read.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], refusal: Refusal) -> None:
        self._refusal = refusal
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(error) from error

    def __enter__(self) -> "LocalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes of the file as it is now."""
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the file's end."""
        parts = []
        try:
            while length > 0 and (part := os.pread(self._fd, length, position)):
                parts.append(part)
                position, length = position + len(part), length - len(part)
        except OSError as error:
            raise self._refusal(error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the number of bytes read."""
        done = 0
        try:
            while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], position + done)):
                done += count
        except OSError as error:
            raise self._refusal(error) from error
        return done

    def read_each(self, positions: Sequence[int], length: int) -> bytes:
        """Return ``length`` bytes from each of ``positions``, with zeros after the end of the file."""
        pread, fd = os.pread, self._fd  # thousands of reads: the cost of each statement counts
        try:
            parts = [pread(fd, length, position) for position in positions]
        except OSError as error:
            raise self._refusal(error) from error
        whole = b"".join(parts)
        if len(whole) == len(parts) * length:
            return whole
        return b"".join(self.read_at(position, length).ljust(length, b"\0") for position in positions)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


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


def lock_holders(path: Path) -> tuple[int, ...]:
    """Return the ids of processes with a lock of either kind on a file; 0 stands for an invisible process.

    Read the kernel's list, because trying the lock would take it for a moment.
    """
    try:
        found = path.stat()
        lines = platform.LOCKS.read_text().splitlines()
    except OSError:
        return ()
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pattern = re.compile(rf"(?:FLOCK|POSIX|OFDLCK) .* (-?\d+) {re.escape(wanted)} ")
    return tuple(sorted({max(int(match[1]), 0) for line in lines if (match := pattern.search(line))}))
