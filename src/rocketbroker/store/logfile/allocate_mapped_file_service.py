"""Preparation of the next file and the next blocks before they are needed (AllocateMappedFileService).

Creating, mapping and allocating can all wait for the disk, and run on one owned thread. The writer, which is the event
loop, waits for them for a limited time. After that, puts are rejected while the disk is busy, and everything else
continues.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rocketbroker.common.errors import StoreBusyError, StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.open_files import why_refused
from rocketbroker.store.logfile.mapped_file import MappedFile


class AllocateMappedFileService:
    """Prepares files and blocks on a dedicated thread.

    Attributes:
        busy_after_s: longest wait of the writer for a file or for blocks, once for each; ``None`` for no limit.
    """

    def __init__(self, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="AllocateMappedFileService")
        self._files: dict[Path, Future[MappedFile]] = {}
        self._blocks: Future[None] | None = None
        self.busy_after_s: float | None = None
        # The file or blocks that were late, and the time of the writer's first request for them.
        self._late: Future[MappedFile] | Future[None] | None = None
        self._late_since = 0.0

    def prepare(self, path: Path, file_size: int, step: int) -> None:
        """Start creating a file; ``take`` returns it."""
        if path not in self._files:
            self._files[path] = self._executor.submit(self._make, path, file_size, step)

    def take(self, path: Path, file_size: int, step: int) -> MappedFile:
        """Return the prepared file, waiting for it if necessary; create it now if nobody prepared it.

        Raises:
            StoreFullError: The disk has no room for it.
            StoreBusyError: It was not ready in time; call again.
        """
        self.prepare(path, file_size, step)
        future = self._files[path]
        self._wait(future, path)
        del self._files[path]
        try:
            return future.result()
        finally:
            # The error's frames refer to this one and its callers: a cycle would keep their files mapped.
            del future

    def ensure_allocated(self, file: MappedFile, end: int) -> None:
        """Allocate blocks for all bytes of a file before ``end``, waiting for them if necessary.

        Raises:
            StoreFullError: The disk has no room for them.
            StoreBusyError: They were not ready in time; call again.
        """
        while end > file.allocated:
            future = self._blocks = self._blocks or self._executor.submit(file.ensure_allocated, end)
            self._wait(future, file.path)
            self._blocks = None
            try:
                future.result()
            finally:
                del future  # as in ``take``

    def _wait(self, future: Future[MappedFile] | Future[None], path: Path) -> None:
        """Wait once until the work has succeeded or failed; late work is not waited for again."""
        if future is not self._late:
            self._late, self._late_since = future, time.monotonic()
            timeout_s = self.busy_after_s
        else:
            timeout_s = 0.0
        try:
            future.exception(timeout_s)
        except TimeoutError:
            waited_ms = int((time.monotonic() - self._late_since) * 1000)
            limit_ms = int((self.busy_after_s or 0) * 1000)
            raise StoreBusyError(
                "broker busy, start flow control for a while: the disk has not given the next blocks of "
                f"{path} for {waited_ms} ms, above the limit of {limit_ms} ms (osPageCacheBusyTimeOutMills)"
            ) from None
        self._late = None

    def _make(self, path: Path, file_size: int, step: int) -> MappedFile:
        file = MappedFile(path, file_size, step, self._file_system)
        try:
            file.ensure_allocated(min(step or file_size, file_size))
            # Name and size reach the disk before those of a later file: no power loss takes a file out of the middle.
            file.sync()
        except (StoreError, OSError) as error:
            # The next message tries again. Each attempt would leave an open file, and a start would find a file of full
            # size that is only a hole.
            file.delete()
            if isinstance(error, OSError):
                raise StoreError(f"cannot sync {path}: {why_refused(error)}") from error
            raise
        return file

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was asked for so far is done.

        Raises:
            TimeoutError: It took longer than ``timeout_s``.
        """
        self._executor.submit(_nothing).result(timeout_s)

    def discard(self) -> None:
        """Remove the prepared files that nobody has taken (blocks): the next file will be a different one.

        Raises:
            OSError: The disk failed.
        """
        self._blocks = self._late = None
        for path, future in list(self._files.items()):
            if future.exception() is None:
                future.result().delete()
                self._file_system.sync_folder(path.parent)
            del self._files[path]

    def grow(self, file: MappedFile, start: int, end: int) -> None:
        """Start allocating blocks and pages of a range; on a failure the writer retries when it gets there."""
        self._executor.submit(_grow, file, start, end)

    def stop(self) -> None:
        """Stop the thread; files that nobody has taken are empty, and are closed and kept for the next start."""
        self._executor.shutdown()
        self._blocks = self._late = None
        for future in self._files.values():
            if future.exception() is None:
                future.result().close()
        self._files.clear()


def _nothing() -> None:
    """Stand at the end of the queue of the thread."""


def _grow(file: MappedFile, start: int, end: int) -> None:
    end = min(end, file.file_size)
    file.ensure_allocated(end)
    file.populate(start, end)
