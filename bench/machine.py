"""Origin of a table: commit, date, machine and options."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.java_toolchain import find_tools

_ROOT = Path(__file__).resolve().parent.parent


def heading(options: Mapping[str, object]) -> dict[str, str]:
    """Return commit, date, machine and options, by name."""
    return {
        "commit": commit(),
        "day": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load average {os.getloadavg()[0]:.2f} at the start",
        "python": platform.python_version(),
        "java": _java_version(),
        "options": ", ".join(f"{name} {value}" for name, value in options.items()),
    }


def commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` for local changes, or ``unknown`` outside a checkout."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _java_version() -> str:
    done = subprocess.run([find_tools()["java"], "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0] or "unknown"
