"""Thread that removes files, and the removed files that are still read."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from rocketbroker.common.clock import Clock
from rocketbroker.store.logfile.mapped_file import RemovedFile

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class CleanThread:
    """Runs work that waits for the disk, one job after the other. Call its methods on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="CleanCommitLogService")
        # Changed only on the thread, and read by the loop. Each has its time of removal in seconds.
        self._held: list[tuple[RemovedFile, float]] = []
        self._told: set[RemovedFile] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*args, **kwargs))

    async def remove(self, remove: Callable[[], RemovedFile | None], take_out: Callable[[], None]) -> bool:
        """Remove a file and at once take it out of service; return false if ``remove`` did not remove it.

        Both happen or neither, even if the caller is cancelled meanwhile. A later ``release`` frees the file's blocks.

        Raises:
            OSError: The disk failed.
        """

        def work() -> bool:
            removed = remove()
            if removed is not None:
                self._held.append((removed, self._clock.monotonic()))
            return removed is not None

        def then(removal: asyncio.Future[bool]) -> None:
            if not removal.cancelled() and removal.exception() is None and removal.result():
                take_out()

        removal = asyncio.get_running_loop().run_in_executor(self._executor, work)
        removal.add_done_callback(then)
        return await asyncio.shield(removal)

    async def release(self) -> None:
        """Free the blocks of removed files that nobody reads any more."""
        if self._held:
            await self.run(self._release)

    def _release(self) -> None:
        for entry in list(self._held):
            if _release(entry[0]):
                self._held.remove(entry)
                self._told.discard(entry[0])

    def coming_room(self, longest_ms: int) -> int:
        """Return the bytes of removed files that are still read; log and omit a file that is read for too long.

        Args:
            longest_ms: longest time that a removed file may be read (destroyMapedFileIntervalForcibly).
        """
        now = self._clock.monotonic()
        late = {file for file, since in self._held if (now - since) * 1000 > longest_ms}
        for file in late - self._told:
            log.warning(
                "%s was removed more than %s ms ago (destroyMapedFileIntervalForcibly), but its messages are still "
                "being sent to slow consumers: its %s bytes are freed after the last of them",
                file.path, longest_ms, file.size,
            )  # fmt: skip
        self._told |= late
        return sum(file.size for file, _ in self._held if file not in late)

    @property
    def holds_files(self) -> bool:
        """True if the blocks of a removed file are not free yet."""
        return bool(self._held)

    async def stop(self) -> None:
        """Stop the thread; the disk frees files that are still read when the process ends."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._executor.shutdown()
        for file, _ in self._held:
            file.close()
        self._held.clear()


def _release(file: RemovedFile) -> bool:
    try:
        return file.release()
    except OSError:
        log.exception("%s is removed: its blocks could not be freed in steps, and are freed all at once", file.path)
        file.close()
        return True
