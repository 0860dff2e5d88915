"""Limit of open files (RLIMIT_NOFILE), and the part reserved for the store.

The kernel has a soft and a hard limit; a process may raise the soft limit up to the hard one. Sockets stop at the soft
limit, which is below the hard limit by the reserve. Files of the store and its tables may use the reserve, which no
number of connections can take.
"""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketbroker.common.errors import StoreError
from rocketbroker.common.platform import mapped_count, max_map_count, open_file_limits, set_open_file_limit

log = logging.getLogger(__name__)


# Descriptors below the soft limit for everything but connections and ``open_file``.
_MARGIN: Final = 16
# The reserve takes at most a quarter of a low limit.
_MOST_OF_LIMIT: Final = 4
# Mappings reserved for the log, the index, threads and the allocator; at most a quarter of a low limit.
_RESERVED_MAPPINGS: Final = 4096
# New queues leave this part of the other mappings to the next files of queues that exist.
_PART_OF_EXISTING: Final = 4
_lock = threading.Lock()


def raise_open_file_limit(reserve: int) -> None:
    """Raise the soft limit to the hard limit less a reserve for ``open_file``."""
    soft, hard = open_file_limits()
    wanted = hard - min(reserve, hard // _MOST_OF_LIMIT)
    try:
        set_open_file_limit(wanted)
    except (ValueError, OSError) as error:
        # The hard limit may exceed the limit of the kernel (fs.nr_open).
        log.warning("the limit of open files stays %s, it cannot be raised to %s: %s", soft, wanted, error)


def open_file(path: Path, flags: int, mode: int) -> int:
    """Open a file like ``os.open``, using the reserve if connections have taken all other descriptors.

    Raises:
        OSError: The file cannot be opened.
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
    """Raise the soft limit inside the block; files opened there stay open."""
    with _lock:
        soft, hard = open_file_limits()
        set_open_file_limit(hard)
        try:
            yield
        finally:
            set_open_file_limit(soft)


def open_file_limit() -> int:
    """Return the number of files that this process may have open."""
    return open_file_limits()[1]


def connection_limit() -> int:
    """Return the lowest descriptor that a connection may not have; the kernel assigns the lowest free one."""
    return open_file_limits()[0] - _MARGIN


def why_refused(error: OSError) -> str:
    """Return the system's text of an error; for a reached limit, add the limit and how to raise it."""
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
        StoreError: The limit of open files is reached.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise StoreError(f"cannot open {error.filename}: {why_refused(error)}") from error


class MappingLimit:
    """Limit of mapped files by vm.max_map_count, less a reserve for the log and one for queues that exist.

    Anybody may make new queues, of which each takes a mapping, and no lawful queue could enter its next file without
    the second reserve. Files of existing queues take 300,000 messages each.
    """

    def __init__(self) -> None:
        # The kernel's limit matters only above this number.
        self._known = 0

    def why_reached(self, *, is_new_queue: bool = False) -> str:
        """Return the reason why no more file of a queue, or of a new one, may be mapped, or an empty text."""
        count = mapped_count()
        if count < self._known:
            return ""
        limit = max_map_count()
        if limit is None:
            return ""
        most = limit - min(_RESERVED_MAPPINGS, limit // _MOST_OF_LIMIT)
        self._known = most - most // _PART_OF_EXISTING
        if count < (self._known if is_new_queue else most):
            return ""
        kept_for = "the log and for existing queues" if is_new_queue else "the log"
        return f"{count:,} files are mapped, and the rest is kept for {kept_for}: {_map_limit()}"


MAPPINGS: Final = MappingLimit()


def why_not_mapped(error: OSError) -> str:
    """Explain a failed mapping like ``why_refused``; the kernel reports ENOMEM for too many mappings too."""
    if error.errno == errno.ENOMEM:
        return f"{error.strerror}: {mapped_count():,} files are mapped; {_map_limit()}"
    return why_refused(error)


def _map_limit() -> str:
    limit = max_map_count()
    return f"a process may have {limit or 0:,} mappings (vm.max_map_count); raise it by sysctl"
