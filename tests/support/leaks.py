"""Descriptors, threads and tasks that a block left behind in this process."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import NamedTuple


class Held(NamedTuple):
    """Numbers of resources that this process and its loop hold."""

    descriptors: int
    threads: int
    tasks: int


def held() -> Held:
    """Count, after what other tests left to the collector is gone."""
    gc.collect()
    descriptors = list(Path("/proc/self/fd").iterdir())
    return Held(len(descriptors), threading.active_count(), len(asyncio.all_tasks()))


def grown(before: Held) -> list[str]:
    """Return the names of what there is more of than before; threads of other tests may end meanwhile."""
    return [name for name, now, then in zip(Held._fields, held(), before, strict=True) if now > then]
