"""What is written to a disk goes through here, so that a test can stand in for the disk and fail or lose power.

Reading is done without it: what was written is read back from the operating system's page cache whatever the disk does.
``LocalFileSystem`` is the operating system's own. A file's bytes are on disk once ``sync`` returned, and its name once
``sync_folder`` did so for its folder; until then a power loss may take any part of either.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from rocketbroker.common.open_files import open_file
from rocketbroker.common.shared_memory import Mapping, map_shared, sync_shared

#: Bytes that a disk writes as a whole, at the least.
SECTOR: Final = 512

# Messages are for the broker's user, and for its group to read; a stricter umask holds.
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750

# Told of each range (start, end) that was stored into a mapping.
RangeWatcher = Callable[[int, int], None]


class FileSystem(Protocol):
    """Makes, writes, syncs, renames and removes files. All may wait for the disk, and raise ``OSError``."""

    def make_folders(self, path: Path) -> list[Path]:
        """Make a folder and those above it; gives the folders that hold a new name, innermost first."""

    def open(self, path: Path) -> int:
        """A descriptor for reading and writing of a file, which is made when it does not exist."""

    def reopen(self, path: Path) -> int:
        """A descriptor for reading and writing of a file that exists."""

    def close(self, fd: int) -> None:
        """Give a descriptor back."""

    def set_size(self, fd: int, size: int) -> None:
        """Cut a file, or add a hole to it."""

    def map(self, fd: int, size: int) -> Mapping:
        """The first ``size`` bytes of a file as shared memory; who stores into it tells the file's ``watcher``."""

    def watcher(self, fd: int) -> RangeWatcher | None:
        """Who wants to be told of what is stored into the mapping of a file; nobody but in tests."""

    def allocate(self, fd: int, start: int, length: int) -> None:
        """Have blocks for a range, so that no store into it can find the disk full."""

    def write(self, fd: int, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at a position."""

    def sync(self, fd: int) -> None:
        """Bring a file's bytes and size to disk, without holding the GIL.

        After an error the kernel may take what it could not write for clean: only what is written anew is synced by a
        later call.
        """

    def sync_mapped(self, mapping: Mapping) -> None:
        """As ``sync``, of a mapped file."""

    def sync_folder(self, path: Path) -> None:
        """Bring a folder's names to disk; one that is gone has none."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or folder another name; a file of that name is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is gone is no error."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; one that is gone is no error."""


class LocalFileSystem:
    """The operating system's."""

    def make_folders(self, path: Path) -> list[Path]:
        """See ``FileSystem``."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(_FOLDER_MODE, exist_ok=True)
        return [folder.parent for folder in missing]

    def open(self, path: Path) -> int:
        """See ``FileSystem``."""
        return open_file(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)

    def reopen(self, path: Path) -> int:
        """See ``FileSystem``."""
        return open_file(path, os.O_RDWR | os.O_CLOEXEC, _FILE_MODE)

    def close(self, fd: int) -> None:
        """See ``FileSystem``."""
        os.close(fd)

    def set_size(self, fd: int, size: int) -> None:
        """See ``FileSystem``."""
        os.ftruncate(fd, size)

    def map(self, fd: int, size: int) -> Mapping:
        """See ``FileSystem``."""
        return map_shared(fd, size)

    def watcher(self, fd: int) -> RangeWatcher | None:
        """Nobody."""
        return None

    def allocate(self, fd: int, start: int, length: int) -> None:
        """See ``FileSystem``."""
        os.posix_fallocate(fd, start, length)

    def write(self, fd: int, position: int, data: bytes | memoryview) -> None:
        """See ``FileSystem``."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, position)
            position += written
            view = view[written:]

    def sync(self, fd: int) -> None:
        """See ``FileSystem``."""
        os.fdatasync(fd)

    def sync_mapped(self, mapping: Mapping) -> None:
        """See ``FileSystem``."""
        sync_shared(mapping)

    def sync_folder(self, path: Path) -> None:
        """See ``FileSystem``."""
        with contextlib.suppress(FileNotFoundError):
            folder = open_file(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, _FOLDER_MODE)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def rename(self, old: Path, new: Path) -> None:
        """See ``FileSystem``."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """See ``FileSystem``."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """See ``FileSystem``."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()


LOCAL = LocalFileSystem()


def parents_of(path: Path) -> list[Path]:
    """The folders whose names lead to a path, as far as this user may read them; the innermost first."""
    return [folder for folder in path.absolute().parents if os.access(folder, os.R_OK)]


def sync_names(root: Path, file_system: FileSystem = LOCAL) -> None:
    """Bring the names of all folders and files below a folder to disk, and its own (blocks)."""
    for folder in parents_of(root):
        file_system.sync_folder(folder)
    for name, _, _ in os.walk(root):
        file_system.sync_folder(Path(name))


def data_ranges(fd: int, position: int, limit: int) -> Iterator[tuple[int, int]]:
    """The parts of a file from a position to a limit that are no holes, ascending; all of it where nobody can tell."""
    if not hasattr(os, "SEEK_DATA"):
        if position < limit:
            yield position, limit
        return
    while position < limit:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        if start < limit:
            yield start, min(position, limit)
