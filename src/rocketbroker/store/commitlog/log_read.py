"""Read of ranges of the CommitLog from the disk into one buffer."""

import os
from collections.abc import Iterator, Sequence

from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.logfile.mapped_file import MappedFile


class LogRead:
    """A pending read; its files stay open until it is done.

    Create it on the event loop, which alone adds and removes files.

    Args:
        commit_log: the log.
        ranges: offset and size of each, in bytes.

    Raises:
        StoreError: The log is closed.
    """

    __slots__ = ("_data", "_parts")

    def __init__(self, commit_log: CommitLog, ranges: Sequence[tuple[int, int]]) -> None:
        self._data = bytearray(sum(size for _, size in ranges))
        self._parts = list(_parts(commit_log, ranges, memoryview(self._data)))

    def read(self) -> bytearray:
        """Return the ranges back to back (blocks), with zeros for bytes that were removed or are missing at a file's
        end.

        Raises:
            StoreError: The disk cannot be read.
        """
        for file, position, into in self._parts:
            try:
                os.preadv(file.fd, [into], position)
            except OSError as error:
                raise StoreError(f"cannot read {file.path} at {position}: {error.strerror}") from error
        return self._data


def file_of(commit_log: CommitLog, offset: int) -> MappedFile | None:
    """Return the file with an offset; ``None`` when it was removed.

    Raises:
        StoreError: The log is closed.
    """
    file = commit_log.queue.find(offset)
    if file is None and offset >= commit_log.min_offset:
        raise StoreError(f"the CommitLog is closed, or has no file with offset {offset}")
    return file


def _parts(
    commit_log: CommitLog, ranges: Sequence[tuple[int, int]], into: memoryview
) -> Iterator[tuple[MappedFile, int, memoryview]]:
    at = 0
    for range_offset, range_size in ranges:
        offset, end = range_offset, range_offset + range_size
        # Of two entries that seem to be neighbours, one may be damaged, so that they lead to different files.
        while offset < end:
            file = file_of(commit_log, offset)
            if file is None:
                at += end - offset
                break
            size = min(end, file.file_from_offset + file.file_size) - offset
            yield file, offset - file.file_from_offset, into[at : at + size]
            at += size
            offset += size
