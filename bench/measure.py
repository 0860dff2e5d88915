"""CPU time and memory of processes by /proc, latencies, the disk below a benchmark, waits of a server's event loop."""

import contextlib
import multiprocessing
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.support.raw_client import RawClient

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command: utime, stime, and both for the children already waited for.
_FIRST_TIME, _AFTER_TIMES = 11, 15
_MARGIN = 2 << 30  # bytes left free
_SMALLEST, _LARGEST = 64, 1024  # bytes of an append
_PAUSE_S = 0.001
_WATCH_S = 0.05


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
    return sum(map(own_anonymous_mib, process_tree(pid)))


def shared_anonymous_mib(pid: int) -> float:
    """Return the anonymous memory of the tree in MiB; what forked processes share counts once (Pss_Anon)."""
    return sum(map(_proportional_mib, process_tree(pid)))


def _proportional_mib(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # the process has ended
        return 0
    found = re.search(r"^Pss_Anon:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0


def loop_seconds(pid: int) -> float:
    """Return the CPU time of a process's main thread, which runs the event loop, by the scheduler's clock."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _cpu_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name is in parentheses and may contain blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[_FIRST_TIME:_AFTER_TIMES]))


def own_anonymous_mib(pid: int, name: str = "") -> float:
    """Return the anonymous memory of one process in MiB; 0 if it is gone, or lacks ``name`` in its name."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found and name in status.partition("\n")[0] else 0


@contextmanager
def watched(sample: Callable[[], float]) -> Iterator[list[float]]:
    """Take samples, twenty a second, while the block runs; yield their list, which begins with 0."""
    done, found = threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(_WATCH_S):
            found.append(sample())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


class Cost(NamedTuple):
    """Cost of some work to a server: seconds of real time, of CPU, of its event loop's thread, and MiB of memory."""

    seconds: float
    cpu: float
    loop: float
    mib: float


def cost(pid: int, work: Callable[[], object], settle_s: float = 0) -> Cost:
    """Do some work and return its cost to a server; memory is read after it had time to settle."""
    mib, cpu, loop, begun = anonymous_mib(pid), cpu_seconds(pid), loop_seconds(pid), time.monotonic()
    work()
    seconds, cpu, loop = time.monotonic() - begun, cpu_seconds(pid) - cpu, loop_seconds(pid) - loop
    time.sleep(settle_s)
    return Cost(seconds, cpu, loop, anonymous_mib(pid) - mib)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values do not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


class Latencies(NamedTuple):
    """Latencies of calls."""

    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.2f} ms" for name, value in self.ms().items())

    def ms(self) -> dict[str, float]:
        """Return them in ms by name, from seconds."""
        return {name: seconds * 1e3 for name, seconds in zip(self._fields, self, strict=True)}


def latencies(seconds: Sequence[float]) -> Latencies:
    """Return the figures of some calls."""
    return Latencies(percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds))


def probe_fdatasync(folder: Path, seconds: float) -> str:
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
    return f"{len(durations) / sum(durations):,.0f} syncs/s, {latencies(durations)}"


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


class Waits(NamedTuple):
    """Waits for small answers, in seconds.

    ``held`` is the most CPU time that the event loop's thread used during one of them. It counts only the server's own
    work, and not the time for which a busy machine did not run it.
    """

    p50: float
    p99: float
    longest: float
    held: float

    def __str__(self) -> str:
        return f"{Latencies(*self[:3])}; longest hold by CPU time {self.held * 1e3:.1f} ms"


class LoopProbe:
    """The probing process; ``take`` returns what it has measured since the last call."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def take(self) -> Waits:
        """Return the waits since the last call."""
        self._pipe.send("take")
        waits, held = self._pipe.recv()
        return Waits(*latencies(waits), held=max(held))


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
