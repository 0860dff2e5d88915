"""Work that a Python worker of Spark does once, rather than for each of its tasks."""

import functools
import gc
import os
from types import TracebackType
from typing import Final

from rocketbroker.common.errors import RocketBrokerError

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


class ShortErrors:
    """Raises errors of ours without their stack: Spark shows it in full, twenty lines before the one that helps."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RocketBrokerError):
            raise error.with_traceback(None) from None
