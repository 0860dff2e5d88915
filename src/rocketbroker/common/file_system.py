"""All writes to disk, behind a Protocol, so that tests can simulate disk errors and power loss.

Reads bypass it, because the page cache returns written data whatever the disk does. ``LocalFileSystem`` is the real
one. A file's bytes are on disk when ``sync`` has returned, and its name when ``sync_folder`` has returned for its
folder; until then a power loss may take any part of either.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from rocketbroker.common import platform
from rocketbroker.common.open_files import open_file
from rocketbroker.common.platform import Mapping, map_shared, sync_shared

#: Smallest number of bytes that a disk writes atomically.
SECTOR: Final = 512

# The broker's user may read and write messages, its group may read them; a stricter umask applies.
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750

# Called with each range (start, end) stored into a mapping.
RangeWatcher = Callable[[int, int], None]


class FileSystem(Protocol):
    """Create, write, sync, rename and remove files. Every method may block on the disk and raise ``OSError``."""

    def make_folders(self, path: Path) -> list[Path]:
        """Make a folder and its parents; return the folders that got a new entry, innermost first."""

    def open(self, path: Path) -> int:
        """Open a file for reading and writing, creating it if needed; return its descriptor."""

    def reopen(self, path: Path) -> int:
        """Open an existing file for reading and writing; return its descriptor."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def set_size(self, fd: int, size: int) -> None:
        """Truncate a file, or extend it by a hole."""

    def map(self, fd: int, size: int) -> Mapping:
        """Map the first ``size`` bytes of a file as shared memory; writers report to the file's ``watcher``."""

    def watcher(self, fd: int) -> RangeWatcher | None:
        """Return the callback for ranges stored into the mapping of a file; set only in tests."""

    def allocate(self, fd: int, start: int, length: int) -> None:
        """Allocate the blocks of a range, so that storing into it cannot fail on a full disk."""

    def write(self, fd: int, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at a position."""

    def sync(self, fd: int) -> None:
        """Sync a file's bytes and size to disk, without holding the GIL.

        After an error the kernel may mark unwritten pages clean: a later call syncs only what was rewritten.
        """

    def sync_mapped(self, mapping: Mapping) -> None:
        """Sync a mapped file like ``sync``; not enough by itself unless ``platform.MSYNC_IS_FDATASYNC``."""

    def sync_folder(self, path: Path) -> None:
        """Sync the names in a folder to disk; do nothing if it is gone."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or folder, replacing a file of that name."""

    def unlink(self, path: Path) -> None:
        """Remove a file; do nothing if it is gone."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; do nothing if it is gone."""


class LocalFileSystem:
    """``FileSystem`` of the operating system."""

    def make_folders(self, path: Path) -> list[Path]:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(_FOLDER_MODE, exist_ok=True)
        return [folder.parent for folder in missing]

    def open(self, path: Path) -> int:
        return open_file(path, os.O_RDWR | os.O_CREAT | platform.O_BINARY, _FILE_MODE)

    def reopen(self, path: Path) -> int:
        return open_file(path, os.O_RDWR | platform.O_BINARY, _FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def set_size(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def map(self, fd: int, size: int) -> Mapping:
        return map_shared(fd, size)

    def watcher(self, fd: int) -> RangeWatcher | None:
        return None

    def allocate(self, fd: int, start: int, length: int) -> None:
        platform.allocate(fd, start, length)

    def write(self, fd: int, position: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            written = platform.write_at(fd, view, position)
            position += written
            view = view[written:]

    def sync(self, fd: int) -> None:
        platform.sync_file(fd)

    def sync_mapped(self, mapping: Mapping) -> None:
        sync_shared(mapping)

    def sync_folder(self, path: Path) -> None:
        if platform.O_DIRECTORY is None:
            return
        with contextlib.suppress(FileNotFoundError):
            folder = open_file(path, os.O_RDONLY | platform.O_DIRECTORY, _FOLDER_MODE)
            try:
                platform.sync_folder(folder)
            finally:
                os.close(folder)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()


LOCAL = LocalFileSystem()


def parents_of(path: Path) -> list[Path]:
    """Return the parent folders of a path that this user may read, innermost first."""
    return [folder for folder in path.absolute().parents if os.access(folder, os.R_OK)]


def sync_names(root: Path, file_system: FileSystem = LOCAL) -> None:
    """Sync the names of a folder and of everything below it to disk (blocks)."""
    for folder in parents_of(root):
        file_system.sync_folder(folder)
    for name, _, _ in os.walk(root):
        file_system.sync_folder(Path(name))
