"""CPU seconds and anonymous memory of a process tree, from /proc (Linux)."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

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
