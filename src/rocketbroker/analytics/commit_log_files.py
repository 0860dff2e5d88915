"""Finds commit-log files and how far they are written. Answers to ``MappedFileQueue.load``."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset
from rocketbroker.common.errors import CodecError, StoreError

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class CommitLogFile:
    """A commit-log file: ``base`` is the physical offset of its first byte, ``size`` its length,
    ``data_end`` the position behind its last byte that is not zero. All in bytes."""

    path: str
    base: int
    size: int
    data_end: int


def commit_log_directory(store_dir: str | Path) -> Path:
    """The commit-log directory of ``store_dir``, which is a store's root or that directory itself.

    :class:`StoreError` when it is neither.
    """
    given = Path(store_dir)
    if not given.is_dir():
        what = "is not a directory" if given.exists() else "does not exist"
        raise StoreError(f"{given} {what}; {_EXPECTED}")
    for candidate in (given / "commitlog", given):
        if candidate.is_dir() and (candidate.name == "commitlog" or _offsets_and_paths(candidate)):
            return candidate
    raise StoreError(f"{given} holds no commit log; {_EXPECTED}")


_EXPECTED = "a RocketMQ store directory (with commitlog/ in it) or its commit-log directory is expected"


def commit_log_files(store_dir: str | Path) -> list[CommitLogFile]:
    """The files of the commit log by offset, as they are now; empty if nothing was ever stored."""
    directory = commit_log_directory(store_dir)
    return [_measure(base, path) for base, path in _offsets_and_paths(directory)]


def _offsets_and_paths(directory: Path) -> list[tuple[int, Path]]:
    found = []
    for path in directory.iterdir():
        try:
            found.append((file_name_to_offset(path.name), path))
        except CodecError:
            continue  # the broker keeps other files there too, such as those of an allocation under way
    return sorted(found)


def _measure(base: int, path: Path) -> CommitLogFile:
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return CommitLogFile(str(path.absolute()), base, size, _data_end(file.fileno(), size))
    except OSError as error:
        raise StoreError(f"cannot read the commit-log file {path}: {error.strerror}") from error


def _data_end(fd: int, size: int) -> int:
    """Position behind the last byte that is not zero; files are created at full size, so most of one may be zeros."""
    for low, high in reversed(_extents(fd, size)):
        for start in range((high - 1) // _BLOCK * _BLOCK, low - _BLOCK, -_BLOCK):
            block = np.frombuffer(os.pread(fd, min(_BLOCK, high - start), start), np.uint8)
            if block.any():
                return start + int(block.nonzero()[0][-1]) + 1
    return 0


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """The parts of a file that are not holes, ascending; the whole file where the system cannot tell."""
    if not hasattr(os, "SEEK_DATA"):
        return [(0, size)] if size else []
    extents, position = [], 0
    while position < size:
        try:
            low = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            break
        position = os.lseek(fd, low, os.SEEK_HOLE)
        extents.append((low, position))
    return extents
