"""Bytes of the CommitLog for slaves: slices of mapped files near the end of the log, read on a thread before."""

from collections.abc import Callable
from typing import Final

from rocketbroker.store.commitlog.commit_log import CommitLog

# Bytes before the end of the transfers that are in the page cache for certain: they were just written.
_HOT: Final = 32 << 20


class TransferSource:
    """The part of the log that slaves may have.

    Args:
        commit_log: the log.
        flushed_offset: returns the CommitLog offset up to which the log is on disk; ``None`` to transfer what is not.
    """

    def __init__(self, commit_log: CommitLog, flushed_offset: Callable[[], int] | None) -> None:
        self._commit_log = commit_log
        self._flushed_offset = flushed_offset

    @property
    def begin(self) -> int:
        """CommitLog offset of the first bytes."""
        return self._commit_log.min_offset

    @property
    def end(self) -> int:
        """CommitLog offset after the last bytes.

        Under SYNC_FLUSH slaves get what is on disk: a slave must not have what its master loses in a power loss.
        """
        end = self._commit_log.max_offset
        return end if self._flushed_offset is None else min(self._flushed_offset(), end)

    @property
    def log_end(self) -> int:
        """CommitLog offset after the last record, on disk or not."""
        return self._commit_log.max_offset

    @property
    def begin_of_last_file(self) -> int:
        """CommitLog offset at which a slave without messages begins."""
        end = self._commit_log.max_offset
        return max(end - end % self._commit_log.queue.file_size, self.begin)

    def is_hot(self, offset: int) -> bool:
        """Return true if a slice from an offset on is read without waiting for the disk."""
        return offset >= self.end - _HOT

    def piece(self, offset: int, most: int) -> memoryview | None:
        """Return up to ``most`` bytes from an offset on, all of one file, as a slice of its mapping."""
        return self._commit_log.slice(offset, size) if (size := self._size(offset, most)) else None

    def read(self, offset: int, most: int) -> bytes | None:
        """Read up to ``most`` bytes from an offset on, all of one file (blocks)."""
        return self._commit_log.bytes_at(offset, size) if (size := self._size(offset, most)) else None

    def _size(self, offset: int, most: int) -> int:
        file_size = self._commit_log.queue.file_size
        return max(min(most, self.end - offset, file_size - offset % file_size), 0)
