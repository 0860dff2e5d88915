"""Runs the module of a server as a child that ends with its parent: ``python -m ... MODULE ARGUMENTS``."""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

from rocketbroker.common.platform import libc_function

_PR_SET_PDEATHSIG: Final = 1
_prctl = libc_function("prctl", ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def main() -> None:
    """Ask for SIGTERM at the parent's end, then run the module; without the call a killed parent leaves its children.

    Arguments: process id of the parent, module, arguments of the module.
    """
    parent = int(sys.argv[1])
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
