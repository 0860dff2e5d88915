"""Python processes in which Spark runs a data source: on the driver to plan, on executors for tasks.

An executor may lack this package, one that it needs, or a store: the errors here say which and what to do.
"""

import functools
import gc
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import CheckpointError, ConfigError, RocketBrokerError, StoreError

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


def _arrive(data: bytes) -> Any:
    """Return an object that was sent to this process; say what to do if its package is missing here."""
    import pickle
    import socket
    import sys

    try:
        kind, state = pickle.loads(data)  # noqa: S301 - from the driver
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ModuleNotFoundError(
            f"the executor's Python at {socket.gethostname()}, {sys.executable}, has no {package}; bring rocketbroker "
            "by spark-submit --py-files rocketbroker.zip, and all that it needs by a packed environment (--archives)"
        ) from None
    found = kind.__new__(kind)
    found.__dict__.update(state)
    return found


# Spark sends an object with the names of its class and module. Where the module is missing, Spark's own code fails to
# import it, before a line of ours runs. So an object is sent as bytes and this function, which looks like one of the
# user's program: Spark sends those as code. It refers to nothing outside of itself.
_arrive.__module__ = "__main__"


class Sent:
    """An object that Spark sends to executors, which may lack its package."""

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return _arrive, (pickle.dumps((type(self), self.__dict__)),)


def missing_store(error: StoreError, stores: Iterable[StoreRoot]) -> StoreError | None:
    """Return a clearer error if this machine lacks the local store that ``error`` is about."""
    for store in stores:
        if store.is_local and store.uri in str(error) and not Path(store.uri).exists():
            return StoreError(
                f"{error}. {store.uri} does not exist at {socket.gethostname()}: a path names a folder of each "
                "executor's machine; mount the store there, or name it by an address, such as s3://bucket/store"
            )
    return None


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
            error = clearer
        if isinstance(error, RocketBrokerError):
            self._note(error)
            raise error.with_traceback(None) from None

    def _note(self, error: RocketBrokerError) -> None:
        pass


class StreamErrors(ShortErrors):
    """``ShortErrors`` of a streaming query, which Spark ends: a note says how it goes on."""

    def _note(self, error: RocketBrokerError) -> None:
        if not isinstance(error, (CheckpointError, ConfigError)):
            error.add_note("Once the cause is gone, start the query again: it resumes from its checkpoint.")
