"""CommitLog files of a store and their written ends. Corresponds to ``MappedFileQueue.load``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from rocketbroker.analytics.files.store_files import (
    LocalFolder,
    OpenedFile,
    StoreFolder,
    open_folder,
    opened,
    shown_path,
)
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.codec.storefile.store_file import LogWindow, offset_files
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import measure

_EXPECTED: Final = "name a store directory, which contains commitlog/, or its commit-log directory"
_FOLDER: Final = "commitlog"
# A block of this size without data is the end of the data, unless data follows within the next _ZEROS_AT_END bytes,
# twice the largest message that a broker accepts. So the search need not read all zeros of a file.
_PROBE: Final = 64 << 10
_ZEROS_AT_END: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit-log file of a store."""

    root: StoreRoot
    name: str  # path in the store
    base: int  # physical offset of the first byte
    size: int  # bytes
    data_end: int  # position after the last byte that may hold data

    @property
    def path(self) -> str:
        """Full path or address without credentials, for messages and reports."""
        return shown_path(self.root, self.name)


def commit_log_folder(folder: StoreFolder) -> str:
    """Return the commit log's folder in a store: "commitlog", or "" if the root itself is that folder.

    Raises:
        StoreError: the store has no commit log.
    """
    if folder.is_folder(_FOLDER):
        return _FOLDER
    if not folder.is_folder():
        is_file = folder.root.is_local and Path(folder.root.uri).exists()
        raise StoreError(f"{folder.root.shown} {'is not a directory' if is_file else 'does not exist'}; {_EXPECTED}")
    is_named_so = folder.root.shown.rsplit("/", 1)[-1] == _FOLDER
    if not is_named_so and not offset_files(folder.files(""), ""):
        raise StoreError(f"{folder.root.shown} has no commit log; {_EXPECTED}")
    return ""


def commit_log_files(root: StoreRoot, *, measure_all: bool = False) -> list[LogFile]:
    """Return the current files of the commit log by offset.

    Files before the last one with data count as full, without being read: a broker fills each before it writes to the
    next. So a store of thousands of files is listed, and one or two of them are read.

    Args:
        root: the store.
        measure_all: true to find the written end of each file of a local store, which may be damaged.
    """
    folder = open_folder(root)
    where = commit_log_folder(folder)
    files = [LogFile(root, path, base, size, size) for base, path, size in offset_files(folder.files(where), where)]
    # Last file first: if a broker rolls to the next file meanwhile, the files before it are full when they are
    # measured. In the other order, its last writes to a file would seem to be missing.
    late, every = list[LogFile](), measure_all and root.is_local
    while files and (every or not any(file.data_end for file in late)):
        late += _measured(folder, files.pop())
    return files + late[::-1]


def _measured(folder: StoreFolder, file: LogFile) -> Iterator[LogFile]:
    """Yield the file with its written end, unless a broker has deleted it."""
    try:
        if isinstance(folder, LocalFolder):
            found = measure(file.base, folder.path(file.name))
            size, end = found.size, found.data_end
        else:
            with opened(folder, file.name, "commit-log file") as source:
                size, end = file.size, written_end(source.read_at, file.size)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    yield replace(file, size=size, data_end=end)


def written_end(read_at: Callable[[int, int], bytes], size: int) -> int:
    """Return the position after the last nonzero byte of a file, found with about twenty reads.

    A run of zeros longer than ``_ZEROS_AT_END`` counts as the end, as it does for a broker.
    """

    def end_within(start: int, stop: int) -> int:
        block = np.frombuffer(read_at(start, stop - start), np.uint8)
        written = block.nonzero()[0]
        return start + int(written[-1]) + 1 if len(written) else -1

    low, high = 0, size
    while True:
        end = low
        while high - low > _PROBE:
            middle = (low + high) // 2
            found = end_within(middle, min(middle + _PROBE, high))
            low, high = (found, high) if found >= 0 else (low, middle)
            end = max(end, low)
        end = max(end, end_within(low, high))
        behind = end_within(high, min(high + _ZEROS_AT_END, size))
        if behind < 0:
            return end
        low, high = behind, size


#: Bytes read at a time from a remote store; also bounds the rows of a batch.
WINDOW_SIZE: Final = 16 << 20
# Bytes read at a time from a local store: each window has a fixed cost, and larger ones miss the processor's cache.
_LOCAL_WINDOW_SIZE: Final = 4 << 20


@contextmanager
def opened_log_file(file: LogFile) -> Iterator[OpenedFile]:
    """Open ``file`` for a ``with`` block; raise :class:`StoreError` if it became shorter since it was listed."""
    with opened(open_folder(file.root), file.name, "commit-log file") as source:
        if source.size < file.size:
            raise StoreError(
                f"{file.path} became shorter while it was read, {source.size} bytes instead of {file.size}; restore "
                "it, or read the store again as it is now"
            )
        yield source


@contextmanager
def log_window(file: LogFile, limit: int | None = None) -> Iterator[LogWindow]:
    """Open ``file`` for a ``with`` block; bytes after the position ``limit`` are loaded only on request."""
    with opened_log_file(file) as source:
        yield LogWindow(source, file, _LOCAL_WINDOW_SIZE if file.root.is_local else WINDOW_SIZE, limit)
