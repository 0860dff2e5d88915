"""Runs a program of ours on a disk with faulty syncs, as long as a file MARK is there.

    faulty_sync.py MARK PYTHON -P -m MODULE ARGUMENT...

While MARK is empty, no ``fdatasync`` ends; while it contains "fail", each ends with EIO. The runner goes before the
command line of the program (``OurServers.launch_broker(runner=...)``).
"""

import errno
import os
import runpy
import sys
import time
from pathlib import Path

FAIL = "fail"


def runner(mark: Path) -> list[str]:
    """Return the prefix for the command line of a program."""
    return [sys.executable, "-P", __file__, str(mark)]


def make_faulty(mark: Path) -> None:
    """Make each ``os.fdatasync`` of this process wait or fail while the file exists."""
    sync = os.fdatasync

    def fdatasync(fd: int) -> None:
        while mark.exists():
            if mark.read_text() == FAIL:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            time.sleep(0.01)
        sync(fd)

    vars(os)["fdatasync"] = fdatasync


if __name__ == "__main__":
    make_faulty(Path(sys.argv[1]))
    sys.argv = sys.argv[5:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
