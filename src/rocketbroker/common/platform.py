"""Calls that not every operating system has, each with a fallback that keeps its promise.

| promise | Linux | elsewhere |
|---|---|---|
| a range of a file has blocks | ``posix_fallocate`` | zeros written into its holes, and a sync |
| bytes and size are on disk | ``fdatasync`` or ``msync`` | ``msync``, then ``F_FULLFSYNC`` (macOS) or ``fsync`` |
| names are on disk | ``fsync`` of the folder | ``F_FULLFSYNC`` (macOS); the file system's journal (Windows) |
| the next pages are ready to be stored into | ``MADV_POPULATE_WRITE`` | they are faulted in one by one |
| a read will not wait for the disk | ``mincore`` | never known: a thread reads |
| processes that hold a lock | ``/proc/locks`` | none is known: a store that is open counts as not closed cleanly |

macOS runs servers and clients; Windows runs clients, which store files only for broadcasting consumers.
"""

import ctypes
import errno
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

fcntl: ModuleType | None
resource: ModuleType | None
try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None

#: ``msync`` does all that ``fdatasync`` does, and vice versa. Elsewhere a mapped file needs both.
MSYNC_IS_FDATASYNC: Final = sys.platform == "linux"
#: Flag of msync(2): return when the bytes are on disk. Linux's number asks macOS for something else.
MS_SYNC: Final = 0x10 if sys.platform == "darwin" else 4
#: Advice of madvise(2) in Linux 5.14 and later; ``None`` elsewhere, where the number may mean anything.
MADV_POPULATE_WRITE: Final = 23 if sys.platform == "linux" else None
#: List of locks of the kernel.
LOCKS: Final = Path("/proc/locks")

#: Flag of ``os.open`` for bytes: Windows translates line ends without it.
O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
#: Flag of ``os.open`` for a folder; ``None`` on Windows, which opens none and keeps a journal of names.
O_DIRECTORY: Final[int | None] = getattr(os, "O_DIRECTORY", None)
# Most files where the system names no limit: OPEN_MAX of macOS, above which it rejects a limit.
_MOST_OPEN_FILES: Final = 10_240
_CHUNK: Final = 1 << 20
# Threads may allocate the same range: the second must find what the first has written. Chosen by inode.
_ALLOCATING: Final = tuple(threading.Lock() for _ in range(64))
# The position of a file is shared by all threads.
_SEEKING: Final = threading.Lock()


def libc_function(name: str, *arguments: Any, result: Any = ctypes.c_int) -> Callable[..., Any]:
    """Return a function of the C library, or one that fails with ENOSYS if the library has none of that name."""
    try:
        found = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, TypeError):  # TypeError: Windows, whose C library is not that of the process
        return _missing(None if result is ctypes.c_void_p else -1)
    found.argtypes, found.restype = arguments, result
    return found  # type: ignore[no-any-return]


def _missing(answer: int | None) -> Callable[..., int | None]:
    def fail(*_arguments: object) -> int | None:
        ctypes.set_errno(errno.ENOSYS)
        return answer

    return fail


#: madvise(2), without the GIL: ``mmap.madvise`` would hold it while thousands of pages are made.
madvise = libc_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
#: mincore(2); a failure means that nothing is known of the pages.
mincore = libc_function("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def write_at(fd: int, data: memoryview, position: int) -> int:
    """Write at a position and return the number of bytes written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, position)
    with _SEEKING:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def allocate(fd: int, start: int, length: int) -> None:
    """Allocate the blocks of a range and keep its bytes, so that storing into it cannot fail on a full disk (blocks).

    Nobody may store into a range before it is allocated. It may be allocated twice, at the same time as well.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, length)
        return
    with _ALLOCATING[os.fstat(fd).st_ino % len(_ALLOCATING)]:
        if _fill_holes(fd, start, start + length):
            # Also finds out now that the disk is full. Until then a hole may be shown where zeros were written.
            sync_file(fd)


def _fill_holes(fd: int, start: int, end: int) -> bool:
    """Write zeros into the holes of a range; return true if there were any."""
    if not hasattr(os, "SEEK_DATA"):
        raise OSError(errno.ENOTSUP, "this system has neither posix_fallocate nor SEEK_DATA")
    filled, position = False, start
    for low, high in [*data_ranges(fd, start, end), (end, end)]:
        while position < low:
            filled = True
            position += write_at(fd, memoryview(bytes(min(low - position, _CHUNK))), position)
        position = high
    return filled


def data_ranges(fd: int, position: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file between two positions that are not holes; all of it if the system cannot tell."""
    if not hasattr(os, "SEEK_DATA"):
        if position < limit:
            yield position, limit
        return
    while position < limit:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        if start < limit:
            yield start, min(position, limit)


def sync_file(fd: int) -> None:
    """Sync a file's bytes and size to disk, without holding the GIL (blocks)."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        _sync_fully(fd)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_folder(fd: int) -> None:
    """Sync the names in a folder to disk (blocks)."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        _sync_fully(fd)
    else:
        os.fsync(fd)


def _sync_fully(fd: int) -> None:
    """Empty the disk's own cache too, which ``fsync`` does not do on macOS; network volumes know ``fsync`` only."""
    assert fcntl is not None
    try:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
            raise
        os.fsync(fd)


def open_file_limits() -> tuple[int, int]:
    """Return the soft and the hard limit of open files of this process."""
    if resource is None:
        return _MOST_OPEN_FILES, _MOST_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft, _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else hard


def open_file_count() -> int | None:
    """Return the number of open files of this process, or ``None`` if unreadable."""
    try:
        return len(list(Path("/proc/self/fd").iterdir())) - 1  # without the one that reads
    except OSError:
        return None


def set_open_file_limit(soft: int) -> None:
    """Set the soft limit of open files, up to the hard one.

    Raises:
        ValueError, OSError: The system rejects it.
    """
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


# Python's ``mmap`` keeps a duplicate of the file's descriptor while the mapping lives, which doubles the descriptors.
# The kernel needs none: a mapping keeps its file by itself. So files are mapped by calls of the C library.
_FAILED: Final = ctypes.c_void_p(-1).value
_mmap = libc_function(
    "mmap",
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    result=ctypes.c_void_p,
)
_munmap = libc_function("munmap", ctypes.c_void_p, ctypes.c_size_t)
_msync = libc_function("msync", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

#: Bytes of a mapped file, mapped as long as this object or a view of it lives.
Mapping = ctypes.Array[ctypes.c_char]

# Addresses of living mappings; add and discard are atomic, so threads need no lock.
_live: set[int] = set()


def map_shared(fd: int, size: int) -> Mapping:
    """Map the first ``size`` bytes of a file for reading and writing; the caller may close the descriptor.

    Raises:
        OSError: The kernel rejected the mapping.
    """
    address = _mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _FAILED:
        raise _last_error()
    mapping = (ctypes.c_char * size).from_address(address)
    _live.add(address)
    # At exit the kernel unmaps everything, when no thread reads any more.
    weakref.finalize(mapping, _unmap, address, size).atexit = False
    return mapping


def _unmap(address: int, size: int) -> None:
    # Discard before the kernel can reuse the address.
    _live.discard(address)
    _munmap(address, size)


def sync_shared(mapping: Mapping) -> None:
    """Write the dirty pages of a mapped file to disk, without holding the GIL.

    The kernel treats this as ``fdatasync`` of the descriptor that the file was mapped by, errors included.

    Raises:
        OSError: The disk failed; dirty pages may be lost.
    """
    if _msync(ctypes.addressof(mapping), ctypes.sizeof(mapping), MS_SYNC):
        raise _last_error()


def mapped_count() -> int:
    """Return the number of mapped files."""
    return len(_live)


def max_map_count() -> int | None:
    """Return the kernel's limit of mappings of a process (vm.max_map_count), or ``None`` if unreadable."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        return None


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
