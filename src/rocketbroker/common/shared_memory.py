"""Files mapped as shared memory, without a descriptor each.

Python's ``mmap`` keeps a copy of the file's descriptor for as long as the mapping lives, so that a thousand files would
cost two thousand. The kernel needs none: a mapping holds its file by itself.
"""

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Final

_MS_SYNC: Final = 4
_FAILED: Final = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_msync = _libc.msync
_msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

#: Bytes of a mapped file. It stays mapped as long as this object or a view of it lives.
Mapping = ctypes.Array[ctypes.c_char]

# Addresses of the mappings that live; adding and discarding are atomic, so that threads need no lock.
_live: set[int] = set()


def map_shared(fd: int, size: int) -> Mapping:
    """Map the first ``size`` bytes of a file for reading and writing; the descriptor may be closed afterwards.

    Raises:
        OSError: the kernel refused.
    """
    address = _mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _FAILED:
        raise _last_error()
    mapping = (ctypes.c_char * size).from_address(address)
    _live.add(address)
    # At exit the kernel unmaps all, when no thread can be reading any more.
    weakref.finalize(mapping, _unmap, address, size).atexit = False
    return mapping


def _unmap(address: int, size: int) -> None:
    # Before the kernel may give the address to another mapping.
    _live.discard(address)
    _munmap(address, size)


def sync_shared(mapping: Mapping) -> None:
    """Write the dirty pages of a mapped file to disk, without holding the GIL.

    For the kernel this is ``fdatasync`` of the descriptor that the file was mapped by, errors included.

    Raises:
        OSError: the disk refused; what is dirty may be lost.
    """
    if _msync(ctypes.addressof(mapping), ctypes.sizeof(mapping), _MS_SYNC):
        raise _last_error()


def mapped_count() -> int:
    """The number of files that are mapped now."""
    return len(_live)


def max_map_count() -> int | None:
    """The kernel's limit of mappings for a process (vm.max_map_count), ``None`` where it cannot be read."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        return None


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
