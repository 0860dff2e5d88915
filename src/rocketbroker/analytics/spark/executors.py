"""Errors of executors that lack this package, one that it needs, or a store."""

import pickle
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import StoreError


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


# Spark's pickler sends a function of this module as code, and one of any other by its name.
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
