"""Conduct of the Python processes in which Spark runs a data source: on the driver to plan, on executors for tasks."""

import functools
import gc
import os
from collections.abc import Sequence
from typing import Final

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.executors import missing_store
from rocketbroker.common.errors import RocketBrokerError, StoreError

# The JVM sets it for workers that run several tasks.
_REUSED: Final = "SPARK_REUSE_WORKER"


@functools.cache
def freeze_modules() -> None:
    """Exempt the loaded modules from garbage collection in a worker that is reused.

    Such a worker collects all garbage after each task, and traverses all modules: 20 to 30 ms each time. Call this at
    the end of its first task, when everything is loaded. It does nothing in other processes, whose collector must not
    be changed.
    """
    if os.environ.get(_REUSED):
        gc.freeze()


class ShortErrors:
    """Raises our errors without their stack trace: Spark would show twenty lines before the message.

    A task gives its ``stores``, which its machine may lack.
    """

    def __init__(self, stores: Sequence[StoreRoot] = ()) -> None:
        self._stores = stores

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StoreError) and (clearer := missing_store(error, self._stores)):
            raise clearer from None
        if isinstance(error, RocketBrokerError):
            raise error.with_traceback(None) from None
