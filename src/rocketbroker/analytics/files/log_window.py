"""A stretch of a commit-log file in memory, wherever the file is."""

from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import OpenedFile
from rocketbroker.common.errors import StoreError

#: Bytes read at a time from another machine; also bounds the rows of a batch.
WINDOW_SIZE: Final = 16 << 20
#: Bytes read at a time here: what is made of them finds them in the processor's cache.
LOCAL_WINDOW_SIZE: Final = 2 << 20


class LogWindow:
    """Bytes ``start`` to ``end`` of an open commit-log file.

    They are copied once, so that what was checked is what is delivered even if a broker is writing, and always into the
    same memory: an :meth:`array` is good until the next load. The file is opened on entry of the ``with`` block;
    :class:`StoreError` when it is gone.

    Args:
        file: the file.
        size: bytes loaded at a time, if not as many as is best for where the file is.
        limit: position behind which nothing is loaded unless it is asked for.
    """

    def __init__(self, file: LogFile, size: int | None = None, limit: int | None = None) -> None:
        self.file = file
        self.start = self.end = 0
        self._limit = file.size if limit is None else min(limit, file.size)
        self._size = min(size or (LOCAL_WINDOW_SIZE if file.root.is_local else WINDOW_SIZE), file.size)
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._opened: OpenedFile | None = None

    def __enter__(self) -> "LogWindow":
        self._opened = open_folder(self.file.root).open(self.file.name, "commit-log file")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()

    @property
    def _source(self) -> OpenedFile:
        if self._opened is None:
            raise StoreError(f"{self.file.path} is not open")
        return self._opened

    def load(self, position: int, least: int) -> None:
        """Move to ``position`` and hold at least ``least`` bytes from there, as far as the file has them."""
        wanted = max(min(self._size, self._limit - position), least)
        wanted = max(min(wanted, self.file.size - position), 0)
        if wanted > len(self._memory):
            self._memory = np.empty(wanted, np.uint8)
        count = self._source.read_into(position, self._memory.data[:wanted]) if wanted else 0
        self.start, self.end = position, position + count

    def at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``, fewer at the file's end; from memory where the window holds them."""
        if self.start <= position and position + length <= self.end:
            return self._memory[position - self.start : position - self.start + length].tobytes()
        return self._source.read_at(position, max(min(length, self.file.size - position), 0))

    def array(self) -> NDArray[np.uint8]:
        """The window's bytes."""
        return self._memory[: self.end - self.start]
