"""The thread on which files are removed, and the files that are removed but still read."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from rocketbroker.common.clock import Clock
from rocketbroker.store.logfile.removed_file import RemovedFile

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class CleanThread:
    """Runs what waits for the disk, one thing after the other. Methods are for the event loop.

    Args:
        clock: measures how long a removed file is still read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="CleanCommitLogService")
        # Touched on the thread alone, and read by the loop. With each, when it was removed, in seconds.
        self._held: list[tuple[RemovedFile, float]] = []
        self._told: set[RemovedFile] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function on the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*args, **kwargs))

    async def remove(self, remove: Callable[[], RemovedFile | None], take_out: Callable[[], None]) -> bool:
        """Have a file removed, and at once taken out of service; false when ``remove`` did not do it.

        Both are done or none, also when the caller is cancelled meanwhile. The file's room comes with a ``release``.

        Raises:
            OSError: the disk refused.
        """
        removal = asyncio.get_running_loop().run_in_executor(self._executor, self._remove, remove)
        removal.add_done_callback(partial(_then, take_out))
        return await asyncio.shield(removal)

    def _remove(self, remove: Callable[[], RemovedFile | None]) -> bool:
        removed = remove()
        if removed is None:
            return False
        self._held.append((removed, self._clock.monotonic()))
        return True

    async def release(self) -> None:
        """Give back the room of removed files that nobody reads any more."""
        if self._held:
            await self.run(self._release)

    def _release(self) -> None:
        for entry in list(self._held):
            if _release(entry[0]):
                self._held.remove(entry)
                self._told.discard(entry[0])

    def coming_room(self, longest_ms: int) -> int:
        """Bytes of removed files that are still read; one that is read for longer is told, and not counted on.

        Args:
            longest_ms: how long to wait (destroyMapedFileIntervalForcibly).
        """
        now = self._clock.monotonic()
        late = {file for file, since in self._held if (now - since) * 1000 > longest_ms}
        for file in late - self._told:
            log.warning(
                "%s was removed more than %s ms ago (destroyMapedFileIntervalForcibly), but messages of it are still "
                "on their way to slow consumers: the disk gets its %s bytes back when the last of them is sent",
                file.path, longest_ms, file.size,
            )  # fmt: skip
        self._told |= late
        return sum(file.size for file, _ in self._held if file not in late)

    @property
    def holds_files(self) -> bool:
        """Whether the room of any removed file is still to come."""
        return bool(self._held)

    async def stop(self) -> None:
        """End the thread; the disk frees what is still read when the process ends."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._executor.shutdown()
        for file, _ in self._held:
            file.close()
        self._held.clear()


def _then(take_out: Callable[[], None], removal: asyncio.Future[bool]) -> None:
    if not removal.cancelled() and removal.exception() is None and removal.result():
        take_out()


def _release(file: RemovedFile) -> bool:
    try:
        return file.release()
    except OSError:
        log.exception("the blocks of %s could not be given back in steps; the disk frees them all at once", file.path)
        file.close()
        return True
