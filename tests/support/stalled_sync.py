"""Runs a program of ours on a disk that is slow to sync: while a file MARK is there, no ``fdatasync`` ends.

    stalled_sync.py MARK PYTHON -P -m MODULE ARGUMENT...

It goes before the command line of the program (``OurServers.launch_broker(runner=...)``).
"""

import os
import runpy
import sys
import time
from pathlib import Path


def runner(mark: Path) -> list[str]:
    """Return the prefix for the command line of a program."""
    return [sys.executable, "-P", __file__, str(mark)]


def stall(mark: Path) -> None:
    """Make each ``os.fdatasync`` of this process wait while the file exists."""
    sync = os.fdatasync

    def fdatasync(fd: int) -> None:
        while mark.exists():
            time.sleep(0.01)
        sync(fd)

    vars(os)["fdatasync"] = fdatasync


if __name__ == "__main__":
    stall(Path(sys.argv[1]))
    sys.argv = sys.argv[5:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
