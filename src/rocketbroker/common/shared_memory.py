"""Files mapped as shared memory without keeping a descriptor.

Python's ``mmap`` keeps a duplicate of the file's descriptor while the mapping lives, which doubles the descriptors. The
kernel needs none: a mapping keeps its file by itself.
"""

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Final

from rocketbroker.common.platform import MS_SYNC, libc_function

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
