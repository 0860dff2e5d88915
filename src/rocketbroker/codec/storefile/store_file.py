"""Files of a store as they are read: an open file, names by offset, and a window on a CommitLog file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rocketbroker.common.errors import CodecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Protocol of an open store file, through which all code of this room reads.
#
# Mapped files of the broker, local files (``common/local_file.py``) and remote files implement it.


class StoreFile(Protocol):
    """An open file of ``size`` bytes. A read returns fewer bytes than requested only at the file's end."""

    @property
    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the number of bytes read."""


# Files that are named by the offset of their first byte (UtilAll.offset2FileName).
#
# name := the file's first byte offset in its queue, as 20 decimal digits

_NAME: Final = re.compile(r"[0-9]{20}", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1


class OffsetFile(NamedTuple):
    """File of a log or a queue: offset of its first byte, path, and length in bytes."""

    base: int
    path: str
    size: int


def offset_files(sizes: Mapping[str, int], folder: str = "") -> list[OffsetFile]:
    """Select the files that are named by an offset, and sort them by it.

    Files that are being allocated, and damaged files that a broker set aside, have other names.

    Args:
        sizes: length of each file in the folder by its name.
        folder: folder of the paths to return.
    """
    found = []
    for name, size in sizes.items():
        try:
            found.append(OffsetFile(file_name_to_offset(name), f"{folder}/{name}" if folder else name, size))
        except CodecError:
            continue
    return sorted(found)


def offset_to_file_name(offset: int) -> str:
    """Return the name of the file that begins at byte ``offset``."""
    if not 0 <= offset <= _MAX_OFFSET:
        raise CodecError(f"file offset {offset} is outside 0..{_MAX_OFFSET}")
    return f"{offset:020d}"


def file_name_to_offset(name: str) -> int:
    """Return the first byte offset of the file called ``name``; :class:`CodecError` for any other name."""
    if _NAME.fullmatch(name) is None or (offset := int(name)) > _MAX_OFFSET:
        raise CodecError(f"{name!r} is not the name of a mapped file: expected 20 decimal digits up to {_MAX_OFFSET}")
    return offset


class LogFile(Protocol):
    """CommitLog file, all in bytes.

    Attributes:
        base: physical offset of its first byte.
        size: length.
        data_end: position after the last byte that may hold data.
    """

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def data_end(self) -> int: ...


class LogExtent(NamedTuple):
    """A ``LogFile`` without a name."""

    base: int
    size: int
    data_end: int


class LogWindow:
    """Bytes ``start`` to ``end`` of an open CommitLog file.

    The bytes are copied once, so that those delivered are those that were checked, even while a broker writes. Each
    load reuses the same memory: a view or an array is valid until the next load.

    Args:
        source: the open file.
        file: begin and written length of the file in the log.
        block: bytes to load at a time; may be changed between two loads.
        limit: position after which nothing is loaded unless requested.
    """

    def __init__(self, source: StoreFile, file: LogFile, block: int = 0, limit: int | None = None) -> None:
        self.file = file
        self.start = self.end = 0
        self.block = block
        self._limit = file.size if limit is None else min(limit, file.size)
        self._source = source
        self._memory = memoryview(b"")

    @classmethod
    def on(cls, data: memoryview, file: LogFile) -> LogWindow:
        """Return a window on the first bytes of a file that are in memory, which are not copied."""
        return _WindowOnMemory(data, file)

    def load(self, position: int, least: int = 0) -> None:
        """Move to ``position`` and hold at least ``least`` bytes from there, as far as the file has them."""
        left = max(self.file.size - position, 0)
        wanted = min(max(min(self.block, self._limit - position), least), left)
        if wanted > len(self._memory):
            self._memory = memoryview(bytearray(wanted))
        count = self._source.read_into(position, self._memory[:wanted]) if wanted > 0 else 0
        self.start, self.end = position, position + count

    def at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the file's end; from memory if the window holds them."""
        if self.start <= position and position + length <= self.end:
            return bytes(self._memory[position - self.start : position - self.start + length])
        return self._source.read_at(position, max(min(length, self.file.size - position), 0))

    @property
    def data(self) -> memoryview:
        """The window's bytes."""
        return self._memory[: self.end - self.start]

    def array(self) -> NDArray[np.uint8]:
        """Return the window's bytes as an array."""
        import numpy as np

        return np.frombuffer(self._memory, np.uint8, self.end - self.start)


class _WindowOnMemory(LogWindow):
    def __init__(self, data: memoryview, file: LogFile) -> None:
        super().__init__(_Memory(data), file)
        self._data = data[: file.data_end]
        self.load(0)

    def load(self, position: int, least: int = 0) -> None:
        self._memory = self._data[position:]
        self.start, self.end = position, position + len(self._memory)


class _Memory:
    """Bytes of a log as a ``StoreFile``."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self._data[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        found = self._data[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)
