"""One file of fixed size, mapped into memory (org.apache.rocketmq.store.logfile.DefaultMappedFile).

The file has its full size from the start, but blocks are allocated in steps ahead of the write position: a store into a
hole of a sparse mapping would kill the process by SIGBUS when the disk is full. No mapped file is ever shortened.

Only this module of the store maps, allocates and syncs.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import Struct

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.storefile.store_file import file_name_to_offset
from rocketbroker.common import platform
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LOCAL, FileSystem, parents_of
from rocketbroker.common.open_files import MAPPINGS, why_not_mapped, why_refused
from rocketbroker.common.platform import Mapping

# Freeing a gibibyte at once would keep the file system's journal from the syncs of others.
_STEP = 64 * 1024 * 1024


class RemovedFile:
    """Keeps the blocks of a file without a name until ``release``, so that no other thread pays for freeing them.

    RocketMQ counts the readers of a mapped file (ReferenceResource). Here the mapping counts them: it lives while
    slices of it are being sent to consumers.

    Args:
        fd: a descriptor of the file, which this object closes.
        mapping: returns its mapping while anybody holds it.
    """

    __slots__ = ("_fd", "_file_system", "_mapping", "path", "size")

    def __init__(
        self, path: Path, fd: int, size: int, mapping: "weakref.ref[Mapping]", file_system: FileSystem
    ) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._mapping = mapping
        self._file_system = file_system

    def release(self) -> bool:
        """Release the disk blocks if nobody reads the file any more (blocks); return false while somebody does.

        Raises:
            OSError: The disk failed.
        """
        if self._mapping() is not None:
            return False
        # It is no longer mapped, so shortening it kills nobody.
        for end in reversed(range(0, self.size, _STEP)):
            self._file_system.set_size(self._fd, end)
        self.close()
        return True

    def close(self) -> None:
        """Close the descriptor; the disk frees the blocks with the last one."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._file_system.close(fd)


#: Suffix of a copy that is about to replace a file; a start removes the copy.
CUT_SUFFIX = ".cut"
# Queue files are named by their offset, 20 digits; index files by their time.
_NAME_LENGTH = 20
# From the folder of a queue up to the store's own.
_FOLDERS = 4
_CHUNK = 1024 * 1024
_DROP_STEP = 16 * 1024 * 1024
_UNMAPPED = (ctypes.c_char * 0)()


class MappedFile:
    """A mapped file; ``buffer`` is its content, ``file_from_offset`` the offset of its first byte in the queue.

    ``buffer`` is read-only: ``write``, ``packer`` and ``writing`` are the only ways to store into the mapping.

    Args:
        path: the file; created if it does not exist.
        step: bytes allocated at a time; 0 allocates all at once.
        keeps_open: true to keep a descriptor, for files that threads often read. Other files, of which a store may have
            tens of thousands, are opened by name for the few operations that cannot use the mapping, and their pages
            are not read ahead before they have a second step. Where ``msync`` does not sync a file, all keep one.

    Raises:
        StoreFullError: The disk has no room for it.
        StoreError: It exists with another size, or cannot be opened.
    """

    __slots__ = (
        "_file_system",
        "_is_random",
        "_map",
        "_new_names",
        "_removed",
        "_step",
        "_stored",
        "_writable",
        "allocated",
        "buffer",
        "fd",
        "file_from_offset",
        "file_size",
        "flushed",
        "keeps_open",
        "path",
        "to_write_again",
        "wrote",
        "zeroed",
    )

    def __init__(
        self,
        path: Path,
        file_size: int,
        step: int = 0,
        file_system: FileSystem = LOCAL,
        *,
        keeps_open: bool = True,
    ) -> None:
        self.fd = -1
        # Keeps the blocks while the file is being removed, even between two attempts.
        self._removed: RemovedFile | None = None
        self.path = path
        self.keeps_open = keeps_open or not platform.MSYNC_IS_FDATASYNC
        self._file_system = file_system
        self.file_size = file_size
        self.file_from_offset = file_name_to_offset(path.name) if len(path.name) == _NAME_LENGTH else 0
        self._step = step or file_size
        # Bytes written, bytes known to be on disk, bytes that have blocks: positions within the file.
        self.wrote = 0
        self.flushed = 0
        # True if the bytes between ``flushed`` and ``wrote`` must be rewritten before a sync says anything about them.
        self.to_write_again = False
        # True if zeros were written after ``wrote`` that are not on disk for certain.
        self.zeroed = False
        if not keeps_open and (why := MAPPINGS.why_reached()):
            raise StoreError(f"cannot map {path}: {why}")
        try:
            if not path.exists():
                file_system.make_folders(path.parent)
            self.fd = file_system.open(path)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {why_refused(error)}") from error
        # Folders whose names may not be on disk yet, the innermost first; ``None`` before the first sync. This includes
        # a file that existed, since its creator may have failed half way, or never synced it.
        self._new_names: list[Path] | None = None
        try:
            existed = os.fstat(self.fd).st_size
            if existed not in (0, file_size):
                raise StoreError(  # noqa: TRY301 - closed below
                    f"{path} has {existed} bytes, but files of this kind are set to {file_size}; "
                    "set the mappedFileSize of the settings to the size with which the store was created"
                )
            self.allocated = 0
            if not existed:
                file_system.set_size(self.fd, file_size)
            self._map = file_system.map(self.fd, file_size)
        except OSError as error:
            self._close_descriptor()
            raise StoreError(f"cannot map {path}: {why_not_mapped(error)}") from error
        except BaseException:
            self._close_descriptor()
            raise
        self._is_random = not existed and not self.keeps_open
        if self._is_random:
            # A store may make tens of thousands of such files, and write little into each. Without the advice the first
            # store into a file reads zeros ahead, as much as the disk's read_ahead_kb.
            platform.madvise(ctypes.addressof(self._map), file_size, mmap.MADV_RANDOM)
        self._writable = memoryview(self._map).cast("B")
        self.buffer = self._writable.toreadonly()
        # Called with each range stored into the mapping, if a test observes the disk.
        self._stored = file_system.watcher(self.fd)
        if not self.keeps_open:
            self._close_descriptor()

    def ensure_allocated(self, end: int) -> None:
        """Allocate blocks for all bytes before ``end``; call it before storing them.

        Raises:
            StoreFullError: The disk has no room.
        """
        # The owned thread and the writer may both get here: the mark is read once, and never goes back.
        allocated = self.allocated
        if end <= allocated:
            return
        target = min(-(-end // self._step) * self._step, self.file_size)
        try:
            with self.opened() as fd:
                self._file_system.allocate(fd, allocated, target - allocated)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                text = f"no room for {target - allocated} bytes of {self.path}: {error.strerror}"
                raise StoreFullError(text) from error
            raise StoreError(f"cannot allocate {self.path}: {why_refused(error)}") from error
        self.allocated = max(self.allocated, target)
        if allocated and self._is_random:
            # A consumer that lags reads the file in order: a fault for each page would hold the event loop often.
            self._is_random = False
            platform.madvise(ctypes.addressof(self._map), self.file_size, mmap.MADV_NORMAL)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the file: its own, or one that lasts for the ``with`` block.

        Raises:
            OSError: It cannot be opened.
        """
        if self.keeps_open:
            yield self.fd
            return
        fd = self._file_system.reopen(self.path)
        try:
            yield fd
        finally:
            self._file_system.close(fd)

    def write(self, start: int, end: int, data: ReadableBuffer) -> None:
        """Store bytes into a range that has blocks, and set ``wrote`` to its end."""
        self._writable[start:end] = data
        self.wrote = end
        if self._stored is not None:
            self._stored(start, end)

    def packer(self, entry: Struct) -> Callable[..., None]:
        """Return a function that packs an entry at a position that has a block: ``write`` without a Python call."""
        pack = partial(entry.pack_into, self._writable)
        stored = self._stored
        if stored is None:
            return pack

        def pack_and_report(position: int, *fields: int) -> None:
            pack(position, *fields)
            stored(position, position + entry.size)

        return pack_and_report

    @contextlib.contextmanager
    def writing(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield a range that has blocks to store into, until the ``with`` block ends; ``wrote`` does not change."""
        try:
            yield self._writable[start:end]
        finally:
            if self._stored is not None:
                self._stored(start, end)

    @property
    def size(self) -> int:
        """Bytes of the file (``codec.storefile.store_file.StoreFile``)."""
        return self.file_size

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the file's end (blocks).

        A read delays no other thread, unlike a page fault. A page fault in a hole kills the process on a full tmpfs.
        """
        with self.opened() as fd:
            return os.pread(fd, length, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the number of bytes read (blocks)."""
        with self.opened() as fd:
            return os.preadv(fd, [buffer], position)

    def populate(self, start: int, end: int) -> None:
        """Make the pages of a range present and writable, so that the writer does not fault on each (blocks).

        The range must have blocks. On a kernel without support, pages are faulted in one by one.
        """
        if platform.MADV_POPULATE_WRITE is None:
            return
        start -= start % mmap.PAGESIZE
        end = min(end, self.allocated)
        if end > start:
            address = ctypes.addressof(self._map) + start
            platform.madvise(address, end - start, platform.MADV_POPULATE_WRITE)

    def is_cached(self, start: int, end: int) -> bool:
        """Return true if a range can now be read from ``buffer`` without waiting for the disk."""
        start -= start % mmap.PAGESIZE
        pages = bytearray(-(-(end - start) // mmap.PAGESIZE))
        address = ctypes.addressof(self._map) + start
        refused = platform.mincore(address, end - start, ctypes.addressof(ctypes.c_char.from_buffer(pages)))
        return not refused and 0 not in pages

    def copy_until(self, end: int) -> "MappedFile":
        """Replace the file by a copy that ends at ``end``, with zeros after it, and return the copy (blocks).

        Readers of this object keep the old bytes. After a crash the path names one file or the other, until
        ``sync_names`` of the copy.

        Raises:
            StoreError: The disk has no room for both files, or failed.
            OSError: The disk failed.
        """
        file_system, aside = self._file_system, self.path.with_name(self.path.name + CUT_SUFFIX)
        file_system.unlink(aside)
        copy = MappedFile(aside, self.file_size, self._step, file_system, keeps_open=self.keeps_open)
        try:
            copy.ensure_allocated(end)
            with copy.opened() as fd:
                for start in range(0, end, _CHUNK):
                    file_system.write(fd, start, self.read_at(start, min(_CHUNK, end - start)))
            copy.wrote = end
            copy.flush()
            file_system.rename(aside, self.path)
        except BaseException:
            copy.delete()
            raise
        copy.path, copy.file_from_offset = self.path, self.file_from_offset
        copy._new_names = [self.path.parent]
        return copy

    def zero_from(self, position: int) -> None:
        """Overwrite with zeros all data at ``position`` and after it, so that no stale record is ever read again."""
        with self.opened() as fd:
            for start, end in platform.data_ranges(fd, position, self.file_size):
                for at in range(start, end, _CHUNK):
                    self.zeroed = True
                    self._file_system.write(fd, at, bytes(min(end - at, _CHUNK)))

    def sync(self) -> None:
        """Write all dirty pages of the file and its name to disk (blocks, without holding the GIL).

        Raises:
            OSError: The disk failed; dirty bytes may be lost.
        """
        if not (self.keeps_open and platform.MSYNC_IS_FDATASYNC):
            self._file_system.sync_mapped(self._map)
        if self.keeps_open:
            self._file_system.sync(self.fd)
        self.sync_names()

    def sync_names(self) -> None:
        """Sync the file's name, and those of its folders, if they may not be on disk (blocks).

        Raises:
            OSError: The disk failed.
        """
        new_names = parents_of(self.path)[:_FOLDERS] if self._new_names is None else self._new_names
        for folder in reversed(new_names):
            self._file_system.sync_folder(folder)
        # Another thread may sync the same file: no name leaves the list before all are on disk.
        self._new_names = []

    @property
    def to_flush(self) -> bool:
        """True if some written bytes are not on disk for certain."""
        return self.wrote > self.flushed or self.zeroed

    def flush(self) -> None:
        """Write unflushed bytes to disk and advance ``flushed`` (blocks).

        After a sync that failed, or may have failed, all these bytes are rewritten first, since the kernel may take
        pages for clean that never reached the disk. The caller must know that the pages still hold what was stored.

        Raises:
            OSError: The disk failed; ``flushed`` does not change.
        """
        wrote = self.wrote
        try:
            if self.to_write_again:
                self._write_again(self.flushed, wrote)
            self.sync()
        except OSError:
            self.to_write_again = True
            raise
        self.to_write_again = self.zeroed = False
        self.flushed = wrote

    def _write_again(self, start: int, end: int) -> None:
        with self.opened() as fd:
            for position in range(start, end, _CHUNK):
                self._file_system.write(fd, position, bytes(self.buffer[position : min(position + _CHUNK, end)]))

    def last_modified_ms(self) -> int:
        """Return the time of the last write, in ms since the epoch (blocks)."""
        with self.opened() as fd:
            return os.fstat(fd).st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Release the mapping, which lives until nobody holds a slice of it, and close the file."""
        self.buffer.release()
        self._writable.release()
        self._map = _UNMAPPED
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._file_system.close(fd)
        if self._removed is not None:
            self._removed.close()

    # The last holder of a removed file closes it: threads that read from it by descriptor would otherwise read from
    # whatever file gets the number next.
    __del__ = _close_descriptor

    def rename(self, path: Path) -> None:
        """Give a file without content the name of another offset in its folder (blocks).

        Raises:
            OSError: The disk failed; the call may be made again.
        """
        if path != self.path:
            self._file_system.rename(self.path, path)
            self.path, self.file_from_offset = path, file_name_to_offset(path.name)
            self._new_names = parents_of(path)[:_FOLDERS]
        self.sync_names()

    def remove(self) -> RemovedFile:
        """Remove the file's name from the disk and leave it open (blocks): holders of the file or a slice of it keep
        reading.

        Raises:
            OSError: The disk failed; the call may be repeated.
        """
        file_system = self._file_system
        if self._removed is None:
            keeper = file_system.open(self.path)
            self._removed = RemovedFile(self.path, keeper, self.file_size, weakref.ref(self._map), file_system)
        file_system.unlink(self.path)
        # No later file may disappear on disk before an earlier one: the store would not open with one missing.
        file_system.sync_folder(self.path.parent)
        # The pages go some at a time, so that unmapping is short on whatever thread it happens.
        address = ctypes.addressof(self._map)
        for start in range(0, self.file_size, _DROP_STEP):
            platform.madvise(address + start, min(_DROP_STEP, self.file_size - start), mmap.MADV_DONTNEED)
        removed, self._removed = self._removed, None
        return removed

    def delete(self) -> None:
        """Close and remove the file."""
        self.close()
        self._file_system.unlink(self.path)
