"""Work that a Python worker of Spark does once, rather than for each of its tasks."""

import functools
import gc
import os
from typing import Final

#: The JVM sets it for workers that take a task after the other.
_REUSED: Final = "SPARK_REUSE_WORKER"


@functools.cache
def settle() -> None:
    """Have Python's garbage collector pass over what is loaded by now, in a worker that is used again.

    Such a worker collects all garbage after each task, and looks through all modules for it: 20 to 30 ms each time. To
    be called at the end of its first task, when all is loaded. Nothing is done in a process of another kind, whose
    collector is not ours to set.
    """
    if os.environ.get(_REUSED):
        gc.freeze()
