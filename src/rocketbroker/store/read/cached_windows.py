"""Parts of the CommitLog that can be read without waiting for the disk."""

import time
from collections.abc import Callable
from typing import Final, Protocol

# Bytes per question to the kernel, and seconds for which its answer is used: asking costs as much as reading a few
# small messages. Unless memory is short, data recently in the page cache is still there.
_WINDOW: Final = 1024 * 1024
_BELIEVED_S: Final = 1.0
# Most cached windows: 4 GiB of the log.
_MOST_WINDOWS: Final = 4096


class CacheableFile(Protocol):
    """A ``MappedFile`` of the log; positions are within it."""

    file_from_offset: int
    wrote: int

    def is_cached(self, start: int, end: int) -> bool:
        """Return true if a range is in the page cache."""


class CachedWindows:
    """Asks the kernel, and keeps each answer for a second.

    Args:
        monotonic: clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Time until which a window counts as in the page cache, by the window's CommitLog offset.
        self._cached_until: dict[int, float] = {}

    def holds(self, file: CacheableFile, start: int, end: int) -> bool:
        """Return true if positions ``start`` to ``end`` of a file of the log are in the page cache."""
        now = self._monotonic()
        begin = file.file_from_offset
        cached_until = self._cached_until
        for window in range(start - start % _WINDOW, end, _WINDOW):
            if cached_until.get(begin + window, 0.0) <= now and not self._ask(file, window, now):
                return file.is_cached(start, end)
        return True

    def _ask(self, file: CacheableFile, window: int, now: float) -> bool:
        if not file.is_cached(window, min(window + _WINDOW, file.wrote)):
            return False
        if len(self._cached_until) >= _MOST_WINDOWS:
            self._cached_until.clear()
        self._cached_until[file.file_from_offset + window] = now + _BELIEVED_S
        return True
