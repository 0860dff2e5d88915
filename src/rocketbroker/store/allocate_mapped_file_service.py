"""Has the next file and the next blocks ready before they are needed (AllocateMappedFileService).

One owned thread: making, mapping and allocating can all wait for the disk.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.mapped_file import MappedFile


class AllocateMappedFileService:
    """Prepares files and blocks on a thread of its own."""

    def __init__(self, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="AllocateMappedFileService")
        self._files: dict[Path, Future[MappedFile]] = {}

    def prepare(self, path: Path, file_size: int, step: int) -> None:
        """Have a file made; ``take`` hands it over."""
        if path not in self._files:
            self._files[path] = self._executor.submit(self._make, path, file_size, step)

    def take(self, path: Path, file_size: int, step: int) -> MappedFile:
        """The prepared file, waited for when it is not ready yet, or made now when nobody prepared it.

        Raises:
            StoreFullError: the disk has no room for it.
        """
        future = self._files.pop(path, None)
        return self._make(path, file_size, step) if future is None else future.result()

    def _make(self, path: Path, file_size: int, step: int) -> MappedFile:
        file = MappedFile(path, file_size, step, self._file_system)
        try:
            file.ensure_allocated(min(step or file_size, file_size))
        except StoreError:
            # Tried again with the next message: each try would leave an open file behind.
            file.close()
            raise
        return file

    def grow(self, file: MappedFile, start: int, end: int) -> None:
        """Have blocks and pages of a range made; a failure shows when the writer gets there and tries itself."""
        self._executor.submit(_grow, file, start, end)

    def stop(self) -> None:
        """End the thread; files that nobody took are closed and, being empty, stay for the next start."""
        self._executor.shutdown()
        for future in self._files.values():
            if future.exception() is None:
                future.result().close()
        self._files.clear()


def _grow(file: MappedFile, start: int, end: int) -> None:
    end = min(end, file.file_size)
    file.ensure_allocated(end)
    file.populate(start, end)
