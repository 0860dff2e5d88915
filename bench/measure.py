"""What a process and all its children have used, from /proc (Linux): CPU seconds, anonymous memory."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat after the command's name: utime, stime, and both of the children that were waited for.
_FIRST_TIME, _AFTER_TIMES = 11, 15


def process_tree(pid: int) -> Iterator[int]:
    """The process, its children, theirs and so on, as far as they still run."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            for child in children.read_text().split():
                yield from process_tree(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree until now, ended children included."""
    return sum(map(_cpu_ticks, process_tree(pid))) / _TICKS


def anonymous_mib(pid: int) -> float:
    """Memory of the tree that no file backs and that is resident (RssAnon), in MiB."""
    return sum(map(_anonymous_kib, process_tree(pid))) / 1024


def _cpu_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name stands in parentheses and may hold blanks and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[_FIRST_TIME:_AFTER_TIMES]))


def _anonymous_kib(pid: int) -> int:
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
