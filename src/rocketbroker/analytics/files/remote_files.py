"""Folders and files of a remote store, through the file systems of pyarrow."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from rocketbroker.analytics.files.store_files import StoreEntry, StoreFolder, checked_path, unreadable
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import ConfigError, StoreError

_SCHEMES: Final = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
# Small reads are served from cached blocks of this many bytes.
_BLOCK: Final = 256 << 10
_BLOCKS: Final = 4


class RemoteFolder(StoreFolder):
    """A remote folder, whose paths are keys below that of the root."""

    def __init__(self, root: StoreRoot) -> None:
        super().__init__(root)
        self._file_system, self._path = _file_system(root.uri)

    def entries(self, folder: str = "") -> list[StoreEntry]:
        try:
            found = self._file_system.get_file_info(fs.FileSelector(self._key(folder), allow_not_found=True))
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.root, folder, "folder", error) from error
        return sorted(
            StoreEntry(info.base_name, info.size or 0, info.type == fs.FileType.Directory)
            for info in found
            if info.base_name
        )

    def is_folder(self, path: str = "") -> bool:
        try:
            kind = self._file_system.get_file_info(self._key(path)).type
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.root, path, "folder", error) from error
        return bool(kind == fs.FileType.Directory)

    def open(self, path: str, what: str = "file") -> "RemoteFile":
        try:
            return RemoteFile(self.root, path, self._file_system.open_input_file(self._key(path)))
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.root, path, what, error) from error

    def _key(self, path: str) -> str:
        return f"{self._path}/{checked_path(path)}" if path else self._path


class RemoteFile:
    """An open remote file that serves small reads from cached blocks."""

    def __init__(self, root: StoreRoot, path: str, file: pa.NativeFile) -> None:
        self._root = root
        self._path = path
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
        try:
            self._file.seek(position)
            while done < wanted and (count := self._file.readinto(buffer[done:wanted])):
                done += count
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self._root, self._path, "file", error) from error
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
        try:
            found: bytes = self._file.read_at(length, position)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self._root, self._path, "file", error) from error
        return found


@lru_cache(maxsize=64)
def _file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it; cached, for one connection pool per address."""
    root = StoreRoot("", uri)
    if urlsplit(uri).scheme.lower() not in _SCHEMES:
        raise ConfigError(f"{root.shown}: unknown scheme; use a path, file://, or one of {', '.join(_SCHEMES)}")
    try:
        file_system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"cannot reach {root.shown}: {_without_secrets(str(error), uri)}") from error
    return file_system, path.rstrip("/")


def _without_secrets(text: str, uri: str) -> str:
    """Return ``text`` unless it repeats the address, which may hold credentials."""
    address = urlsplit(uri)
    secrets = (uri, address.netloc.rpartition("@")[0], address.password, address.query)
    return "the address is not valid" if any(secret and secret in text for secret in secrets) else text
