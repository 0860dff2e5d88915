"""The number of files that this process may open (RLIMIT_NOFILE), and what is said when it is reached."""

import errno
import logging
import resource

from rocketbroker.common.shared_memory import mapped_count, max_map_count

log = logging.getLogger(__name__)


def raise_open_file_limit() -> int:
    """Raise the limit to what the system allows this process; gives the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        # The hard limit may be above what the kernel takes (fs.nr_open).
        log.warning("the limit of open files stays %s, it cannot be raised to %s: %s", soft, hard, error)
        return soft
    return hard


def open_file_limit() -> int:
    """The number of files that this process may have open at a time."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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


def why_not_mapped(error: OSError) -> str:
    """As ``why_refused``, for a file that could not be mapped: the kernel says ENOMEM for too many mappings as well."""
    if error.errno == errno.ENOMEM:
        return f"{error.strerror}: {mapped_count():,} files are mapped; {_map_limit()}"
    return why_refused(error)


def _map_limit() -> str:
    limit = max_map_count()
    return f"a process may have {limit or 0:,} mappings (vm.max_map_count); raise it by sysctl"
