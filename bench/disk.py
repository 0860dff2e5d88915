"""The disk under a benchmark: free space, bare fdatasync, and dropping files from the page cache."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

_MARGIN = 2 << 30  # bytes left free
_SMALLEST, _LARGEST = 64, 1024  # bytes of an append


@dataclass(frozen=True, slots=True)
class SyncFigures:
    """Figures of a loop of small appends, each followed by ``fdatasync``.

    Attributes:
        rate: syncs a second.
        p50: ms of one append and sync, the median.
        p99: likewise, the 99th percentile.
    """

    rate: float
    p50: float
    p99: float

    def __str__(self) -> str:
        return f"bare fdatasync: {self.rate:,.0f} syncs/s, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms"


def probe_fdatasync(folder: Path, seconds: float) -> SyncFigures:
    """Measure repeated appends of 64 to 1,024 bytes with a sync each, to a temporary file in ``folder``.

    The file is preallocated, as a broker's files are, so that no sync writes more than pages and size.
    """
    path = folder / "fdatasync.probe"
    durations: list[float] = []
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, 64 << 20)
            os.fsync(fd)
            end = time.monotonic() + seconds
            position = 0
            while len(durations) < 2 or time.monotonic() < end:
                size = _SMALLEST + len(durations) * 97 % (_LARGEST - _SMALLEST + 1)
                begun = time.perf_counter()
                os.pwrite(fd, b"x" * size, position)
                os.fdatasync(fd)
                durations.append(time.perf_counter() - begun)
                position += size
        finally:
            os.close(fd)
    finally:
        path.unlink(missing_ok=True)
    return sync_figures(durations)


def sync_figures(durations: list[float]) -> SyncFigures:
    """Return the figures of at least two syncs, given in seconds."""
    p99 = quantiles(durations, n=100, method="inclusive")[98]
    return SyncFigures(len(durations) / sum(durations), median(durations) * 1000, p99 * 1000)


def room(folder: Path) -> int:
    """Return the bytes that may be written below ``folder``, leaving 2 GiB of the file system free."""
    return max(shutil.disk_usage(folder).free - _MARGIN, 0)


def drop_from_page_cache(folder: Path) -> None:
    """Sync all files below ``folder`` and drop them from the page cache, so that the next read goes to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
