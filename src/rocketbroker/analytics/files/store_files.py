"""Read-only access to the folders and files of a store, local or remote.

Paths within a store are relative, with "/" between names, and never lead out of it. Remote ones are read through the
file systems of pyarrow, which are imported when the first address is opened.
"""

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.local_file import LocalFile

# Longest file name that file systems allow, in bytes.
_LONGEST_NAME: Final = 255
_HADOOP: Final = ("hdfs", "viewfs")
_SCHEMES: Final = ("s3", "gs", "gcs", *_HADOOP, "abfs", "abfss")
# What libhdfs needs; it shows the causes of its errors on stderr alone.
_HADOOP_NEEDS: Final = (
    "reading from Hadoop needs its libhdfs (set HADOOP_HOME or ARROW_LIBHDFS_DIR), a Java (JAVA_HOME), and CLASSPATH "
    "as `hadoop classpath --glob` prints it; or copy the store to this machine or to s3://"
)
# Small reads are served from cached blocks of this many bytes.
_BLOCK: Final = 256 << 10
_BLOCKS: Final = 4


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
            with os.scandir(f"{self.root.uri}/{checked_path(folder)}") as listed:
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


class RemoteFolder(StoreFolder):
    """A remote folder, whose paths are keys below that of the root."""

    def __init__(self, root: StoreRoot) -> None:
        super().__init__(root)
        self._file_system, self._path = file_system(root)

    def entries(self, folder: str = "") -> list[StoreEntry]:
        from pyarrow import fs

        with _readable(self.root, folder, "folder"):
            found = self._file_system.get_file_info(fs.FileSelector(self._key(folder), allow_not_found=True))
        return sorted(
            StoreEntry(info.base_name, info.size or 0, info.type == fs.FileType.Directory)
            for info in found
            if info.base_name
        )

    def is_folder(self, path: str = "") -> bool:
        from pyarrow import fs

        with _readable(self.root, path, "folder"):
            return bool(self._file_system.get_file_info(self._key(path)).type == fs.FileType.Directory)

    def open(self, path: str, what: str = "file") -> "RemoteFile":
        with _readable(self.root, path, what):
            return RemoteFile(self.root, path, self._file_system.open_input_file(self._key(path)))

    def _key(self, path: str) -> str:
        return f"{self._path}/{checked_path(path)}" if path else self._path


class RemoteFile:
    """An open remote file that serves small reads from cached blocks."""

    def __init__(self, root: StoreRoot, path: str, file: pa.NativeFile) -> None:
        self._readable = partial(_readable, root, path, "file")
        self._file = file
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.size: int = file.size()

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the file's end."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        if length > _BLOCK:
            return self._read(position, length)
        first = position // _BLOCK * _BLOCK
        found = self._block(first)[position - first : position - first + length]
        if len(found) < length:
            found += self._block(first + _BLOCK)[: length - len(found)]
        return found

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position``; return the number of bytes read."""
        wanted, done = min(len(buffer), self.size - position), 0
        with self._readable():
            self._file.seek(position)
            while done < wanted and (count := self._file.readinto(buffer[done:wanted])):
                done += count
        return done

    def read_each(self, positions: Sequence[int], length: int) -> bytes:
        """Return ``length`` bytes from each of ``positions``, one read each, with zeros after the file's end."""
        sizes = [max(min(length, self.size - position), 0) for position in positions]
        parts = [self._read(position, size) if size else b"" for position, size in zip(positions, sizes, strict=True)]
        return b"".join(part.ljust(length, b"\0") for part in parts)

    def close(self) -> None:
        self._file.close()

    def _block(self, start: int) -> bytes:
        block = self._blocks.pop(start, None)
        if block is None:
            block = self._read(start, min(_BLOCK, self.size - start))
        self._blocks[start] = block
        if len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return block

    def _read(self, position: int, length: int) -> bytes:
        with self._readable():
            found: bytes = self._file.read_at(length, position)
        return found


@contextmanager
def _readable(root: StoreRoot, path: str, what: str) -> Iterator[None]:
    """Raise :class:`StoreError`, which names the path, where pyarrow cannot read in the block."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable(root, path, what, error) from error


@contextmanager
def unreachable(root: StoreRoot) -> Iterator[None]:
    """Raise :class:`StoreError`, which names the place, where pyarrow cannot use it in the block."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = str(error) if root.is_local else _without_secrets(str(error), root.uri)
        raise StoreError(f"cannot use {root.shown}: {why}") from error


def file_system(root: StoreRoot) -> tuple[Any, str]:
    """Return the file system of a place and the path in it."""
    if root.is_local:
        from pyarrow import fs

        return fs.LocalFileSystem(), root.uri
    return _remote_file_system(root.uri)


@lru_cache(maxsize=64)
def _remote_file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of an address; cached, for one connection pool per address."""
    root, scheme = StoreRoot("", uri), urlsplit(uri).scheme.lower()
    if scheme not in _SCHEMES:
        raise ConfigError(f"{root.shown}: unknown scheme; use a path, file://, or one of {', '.join(_SCHEMES)}")
    from pyarrow import fs

    try:
        file_system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        why = _without_secrets(str(error), uri)
        if scheme in _HADOOP:  # further lines list a hundred files that were tried
            why = f"{why.partition(chr(10))[0]}; {_HADOOP_NEEDS}"
        raise StoreError(f"cannot reach {root.shown}: {why}") from error
    # pyarrow connects on use, and takes a namenode that does not answer for one without the path.
    if scheme in _HADOOP and file_system.get_file_info("/").type == fs.FileType.NotFound:
        raise StoreError(f"cannot reach {root.shown}: the namenode does not answer; libhdfs shows the cause on stderr")
    return file_system, path.rstrip("/")


def _without_secrets(text: str, uri: str) -> str:
    """Return ``text`` unless it repeats the address, which may hold credentials."""
    address = urlsplit(uri)
    secrets = (uri, address.netloc.rpartition("@")[0], address.password, address.query)
    return "the address is not valid" if any(secret and secret in text for secret in secrets) else text


def open_folder(root: StoreRoot) -> StoreFolder:
    """Return the folder of a store, which need not exist."""
    return LocalFolder(root) if root.is_local else RemoteFolder(root)
