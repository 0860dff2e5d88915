"""Progress of a service that stores copies of messages, held back until the copies are on disk.

If the file were ahead of the copies, a power loss would lose messages that were on disk long before they were due.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")


class LogEnds(Protocol):
    """End of the CommitLog, and of the part that is on disk; ``CommitLogFlusher`` knows both."""

    @property
    def max_offset(self) -> int:
        """CommitLog offset after the last message."""

    @property
    def flushed_offset(self) -> int:
        """CommitLog offset before which all is on disk."""


class DurableProgress(Generic[P]):
    """Holds progress back until the copies stored for it are on disk.

    Args:
        log: the ends of the log that has the copies.
        value: initial progress.
    """

    def __init__(self, log: LogEnds, value: P) -> None:
        self._log = log
        self.value = value
        # Pairs of the log's end when progress was made, and the progress.
        self._waiting: deque[tuple[int, P]] = deque()

    @property
    def is_behind(self) -> bool:
        """True if some progress may not be written yet."""
        return bool(self._waiting)

    def made(self, progress: P) -> None:
        """Note progress whose copies are in the log; it must not be changed afterwards."""
        end = self._log.max_offset
        if self._waiting and self._waiting[-1][0] == end:
            self._waiting.pop()
        self._waiting.append((end, progress))

    def advance(self) -> bool:
        """Set ``value`` to the progress whose copies are on disk; return true if it has changed."""
        flushed = self._log.flushed_offset
        advanced = False
        while self._waiting and self._waiting[0][0] <= flushed:
            self.value = self._waiting.popleft()[1]
            advanced = True
        return advanced

    def replace(self, value: P) -> None:
        """Continue from another value, such as a file's."""
        self.value = value
        self._waiting.clear()
