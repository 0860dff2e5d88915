"""Read-only access to the folders and files of a store, local or remote.

Paths within a store are relative, with "/" between names, and never lead out of it.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile

# Longest file name that file systems allow, in bytes.
_LONGEST_NAME: Final = 255


class StoreEntry(NamedTuple):
    """A file or folder in a folder; ``size`` is in bytes, 0 for a folder."""

    name: str
    size: int
    is_folder: bool


class OpenedFile(StoreFile, Protocol):
    """A file of a store that is open for reading."""

    def read_each(self, positions: Sequence[int], length: int) -> bytes:
        """Return ``length`` bytes from each of ``positions``, with zeros after the file's end."""

    def close(self) -> None: ...


class StoreFolder(ABC):
    """The folders and files below the root of a store, in their current state."""

    def __init__(self, root: StoreRoot) -> None:
        self.root = root

    @abstractmethod
    def entries(self, folder: str = "") -> list[StoreEntry]:
        """List a folder by name; empty if it does not exist."""

    @abstractmethod
    def is_folder(self, path: str = "") -> bool:
        """Return true if the folder exists."""

    @abstractmethod
    def open(self, path: str, what: str = "file") -> OpenedFile:
        """Open a file; raise :class:`StoreError`, which calls it ``what``, if it cannot be read."""

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of the folders in a folder; empty if it does not exist."""
        return [entry.name for entry in self.entries(folder) if entry.is_folder]

    def files(self, folder: str = "") -> dict[str, int]:
        """Return the files in a folder, sorted by name, with their sizes in bytes; empty if it does not exist."""
        return {entry.name: entry.size for entry in self.entries(folder) if not entry.is_folder}

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Read bytes of a file, to its end if ``length`` is -1; raise :class:`StoreError` if it does not exist."""
        with opened(self, path) as file:
            left = max(file.size - offset, 0)
            return file.read_at(offset, left if length < 0 else min(length, left))

    def read_if_there(self, path: str, offset: int = 0, length: int = -1) -> bytes | None:
        """Read bytes of a file like ``read``; return ``None`` if it does not exist."""
        try:
            return self.read(path, offset, length)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def name_of(self, path: str) -> str:
        """Return a file's full path without credentials, for messages and reports."""
        return shown_path(self.root, path)


@contextmanager
def opened(folder: StoreFolder, path: str, what: str = "file") -> Iterator[OpenedFile]:
    """Open a file for a ``with`` block."""
    file = folder.open(path, what)
    try:
        yield file
    finally:
        file.close()


def checked_path(path: str) -> str:
    """Return ``path`` if it stays within the store, else raise :class:`StoreError`."""
    parts = path.split("/") if path else []
    if any(part in {"", ".", ".."} or "\0" in part or "\\" in part for part in parts):
        raise StoreError(f"{path!r} is not a path within a store; separate names by / and do not leave the store")
    return path


def is_file_name(name: str) -> bool:
    """Return true if ``name`` is valid for a file or folder; names read from damaged files may be anything."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return 0 < size <= _LONGEST_NAME and name not in {".", ".."} and not set(name) & {"/", "\\", "\0"}


def shown_path(root: StoreRoot, path: str) -> str:
    """Return a path within its store's path, without credentials, for messages and reports."""
    return f"{root.shown.rstrip('/')}/{path}" if path else root.shown


def unreadable(root: StoreRoot, path: str, what: str, error: Exception) -> StoreError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    hint = " (a broker deletes old files)" if isinstance(error, FileNotFoundError) else ""
    return StoreError(f"cannot read the {what} {shown_path(root, path)}: {why}{hint}")


class LocalFolder(StoreFolder):
    """A directory of this machine."""

    def path(self, path: str) -> Path:
        return Path(self.root.uri, checked_path(path))

    def entries(self, folder: str = "") -> list[StoreEntry]:
        """List a folder by name, without entries that are removed meanwhile."""
        try:
            with os.scandir(self.path(folder)) as listed:
                return sorted(found for entry in listed if (found := _entry(entry)) is not None)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.root, folder, "folder", error) from error

    def is_folder(self, path: str = "") -> bool:
        try:
            return self.path(path).is_dir()
        except OSError as error:
            raise unreadable(self.root, path, "folder", error) from error

    def open(self, path: str, what: str = "file") -> LocalFile:
        return LocalFile(f"{self.root.uri}/{checked_path(path)}", partial(unreadable, self.root, path, what))


def _entry(entry: "os.DirEntry[str]") -> StoreEntry | None:
    """Return the file or folder of a directory entry, ``None`` if it was removed."""
    try:
        is_folder = entry.is_dir()
        return StoreEntry(entry.name, 0 if is_folder else entry.stat().st_size, is_folder)
    except FileNotFoundError:
        return None
