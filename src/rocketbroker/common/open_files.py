"""The number of files that this process may open (RLIMIT_NOFILE), and the part of it that is kept for the store.

The kernel has a soft and a hard limit; a process may raise the former to the latter. Sockets meet the soft limit, which
is below the hard one by the reserve. Files of the store and its tables are opened up to the hard limit, so that
connections, however many, cannot take the reserve.
"""

import errno
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketbroker.common.errors import StoreError
from rocketbroker.common.shared_memory import mapped_count, max_map_count

log = logging.getLogger(__name__)


# Descriptors below the soft limit that are left to what is neither a connection nor opened by ``open_file``.
_MARGIN: Final = 16
# Of a low limit the reserve takes no more than a quarter.
_MOST_OF_LIMIT: Final = 4
# Mappings that queue files leave to the log, the index, threads and the allocator; of a low limit a quarter.
_RESERVED_MAPPINGS: Final = 4096
_lock = threading.Lock()


def raise_open_file_limit(reserve: int) -> None:
    """Raise the soft limit to the hard one, less a reserve for ``open_file``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard - min(reserve, hard // _MOST_OF_LIMIT)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        # The hard limit may be above what the kernel takes (fs.nr_open).
        log.warning("the limit of open files stays %s, it cannot be raised to %s: %s", soft, wanted, error)


def open_file(path: Path, flags: int, mode: int) -> int:
    """As ``os.open``, from the reserve where connections have taken all others.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        return os.open(path, flags, mode)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    with _whole_limit():
        return os.open(path, flags, mode)


@contextmanager
def _whole_limit() -> Iterator[None]:
    """Lift the soft limit for the time of the block; what was opened stays open."""
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_file_limit() -> int:
    """The number of files that this process may have open at a time."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def connection_limit() -> int:
    """The lowest descriptor with which a connection is turned away; the kernel gives each the lowest that is free."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _MARGIN


def why_refused(error: OSError) -> str:
    """The system's text of an error; for a limit that was reached, with the limit and what raises it."""
    text = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        return (
            f"{text}: this process may open {open_file_limit():,} (ulimit -n); raise the limit and start it again, or "
            "close connections"
        )
    if error.errno == errno.ENFILE:
        return f"{text}: all processes together have reached the system's limit; raise fs.file-max"
    return text


@contextmanager
def limit_named() -> Iterator[None]:
    """Name the limit in the error when descriptors run out.

    Raises:
        StoreError: so many files are open.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise StoreError(f"cannot open {error.filename}: {why_refused(error)}") from error


class MappingLimit:
    """The number of files that may be mapped and leave the reserve, by vm.max_map_count."""

    def __init__(self) -> None:
        # Up to so many the kernel need not be asked for its limit.
        self._known = 0

    def why_reached(self) -> str:
        """Return why no more queue file may be mapped; empty while there is room."""
        count = mapped_count()
        if count < self._known:
            return ""
        limit = max_map_count()
        if limit is None:
            return ""
        self._known = limit - min(_RESERVED_MAPPINGS, limit // _MOST_OF_LIMIT)
        if count < self._known:
            return ""
        return f"{count:,} files are mapped, and the rest is kept for the log: {_map_limit()}"


MAPPINGS: Final = MappingLimit()


def why_not_mapped(error: OSError) -> str:
    """As ``why_refused``, for a file that could not be mapped: the kernel says ENOMEM for too many mappings as well."""
    if error.errno == errno.ENOMEM:
        return f"{error.strerror}: {mapped_count():,} files are mapped; {_map_limit()}"
    return why_refused(error)


def _map_limit() -> str:
    limit = max_map_count()
    return f"a process may have {limit or 0:,} mappings (vm.max_map_count); raise it by sysctl"
