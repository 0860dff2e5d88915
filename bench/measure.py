"""CPU time and memory of processes by /proc, the disk below a benchmark, and the waits of a server's event loop."""

import contextlib
import multiprocessing
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

from tests.support.raw_client import RawClient

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command: utime, stime, and both for the children already waited for.
_FIRST_TIME, _AFTER_TIMES = 11, 15


def process_tree(pid: int) -> Iterator[int]:
    """Yield the process and all its running descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            for child in children.read_text().split():
                yield from process_tree(int(child))


def cpu_seconds(pid: int) -> float:
    """Return user and system time of the tree so far, including ended children."""
    return sum(map(_cpu_ticks, process_tree(pid))) / _TICKS


def anonymous_mib(pid: int) -> float:
    """Return the resident anonymous memory of the tree (RssAnon) in MiB."""
    return sum(map(_anonymous_kib, process_tree(pid))) / 1024


def loop_seconds(pid: int) -> float:
    """Return the CPU time of a process's main thread, which runs the event loop, by the scheduler's clock."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values do not exceed; 0 without values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def _cpu_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name is in parentheses and may contain blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[_FIRST_TIME:_AFTER_TIMES]))


def _anonymous_kib(pid: int) -> int:
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


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


_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits for small answers, in seconds.

    Attributes:
        p50: the median, by the wall clock.
        p99: the 99th percentile.
        longest: the longest.
        held: the most CPU time that the event loop's thread used during one of them. It counts only the server's own
            work, and not the time for which a busy machine did not run it.
    """

    p50: float
    p99: float
    longest: float
    held: float


class LoopProbe:
    """The probing process; ``take`` returns what it has measured since the last call."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def take(self) -> Waits:
        """Return the waits since the last call."""
        self._pipe.send("take")
        waits, held = self._pipe.recv()
        return Waits(percentile(waits, 0.5), percentile(waits, 0.99), max(waits), max(held))


@contextmanager
def probing(address: str, pid: int, frame: bytes) -> Iterator[LoopProbe]:
    """Ask a server with this request, again and again, 1 ms after each answer."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_probe, args=(address, pid, frame, theirs))
    process.start()
    theirs.close()
    try:
        yield LoopProbe(ours)
    finally:
        ours.close()
        process.join()


def _probe(address: str, pid: int, frame: bytes, pipe: Connection) -> None:
    waits: list[float] = []
    held: list[float] = []
    with RawClient(address) as client:
        while True:
            cpu, begun = loop_seconds(pid), time.monotonic()
            client.send(frame)
            client.read()
            waits.append(time.monotonic() - begun)
            held.append(loop_seconds(pid) - cpu)
            if pipe.poll(_PAUSE_S):
                try:
                    pipe.recv()
                except EOFError:
                    return
                pipe.send((waits, held))
                waits, held = [], []
