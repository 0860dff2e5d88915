"""Brings what was written to disk (FlushRealTimeService, GroupCommitService, FlushConsumeQueueService).

One owned thread for the CommitLog and one for the queues; the event loop never waits for a disk. Under ASYNC_FLUSH the
log is synced each ``flushIntervalCommitLog``; under SYNC_FLUSH one sync serves all sends that came before it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator

from rocketbroker.common.lifecycle import ServiceThread
from rocketbroker.store.mapped_file import MappedFile
from rocketbroker.store.mapped_file_queue import MappedFileQueue

log = logging.getLogger(__name__)


class CommitLogFlusher:
    """Syncs the CommitLog.

    Args:
        queue: the files of the log.
        interval_s: how often it is synced when nobody waits.
        last_stored: gives the store time of the last message in ms; asked before each sync.
        on_flushed: called on the flush thread after each sync with the store time asked before it.
        on_failed: called on the flush thread with the reason when the disk refused.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        interval_s: float,
        last_stored: Callable[[], int],
        on_flushed: Callable[[int], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._last_stored = last_stored
        self._on_flushed = on_flushed
        self._thread = ServiceThread("FlushRealTimeService", interval_s, self.flush)
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        # Why a sync failed. It stays: a kernel that could not write pages may drop them, and tells of it only once, so
        # that a later sync which succeeds does not mean that they are on disk.
        self.error = ""
        self._on_failed = on_failed

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Sync a last time and end the thread (blocks)."""
        self._thread.stop()

    @property
    def flushed_offset(self) -> int:
        """Everything before this offset of the log is on disk."""
        for file in self._queue.files:
            if file.flushed < file.file_size:
                return file.file_from_offset + file.flushed
        return self._queue.max_offset

    def wait_flushed(self, offset: int) -> asyncio.Future[bool]:
        """Done when the log is on disk up to ``offset``: true, or false when the disk refused."""
        assert self._loop is not None
        future = self._loop.create_future()
        self._waiting.append((offset, future))
        self._thread.wakeup()
        return future

    def flush(self) -> None:
        """Sync each file that has unsynced bytes; runs on the flush thread."""
        stored = self._last_stored()
        try:
            for file in list(self._queue.files):
                self._flush_file(file)
        except OSError as error:
            self.error = f"the CommitLog could not be synced: {error.strerror}"
            log.exception("%s; sends are refused until the next start", self.error)
            self._on_failed(self.error)
        else:
            if not self.error:
                self._on_flushed(stored)
        if self._waiting and self._loop is not None:
            self._loop.call_soon_threadsafe(self._release)

    @staticmethod
    def _flush_file(file: MappedFile) -> None:
        wrote = file.wrote
        if wrote > file.flushed:
            file.sync()
            file.flushed = wrote

    def _release(self) -> None:
        """Tell the sends whose messages are on disk; all of them when the disk refused."""
        flushed = self.flushed_offset
        still: list[tuple[int, asyncio.Future[bool]]] = []
        for offset, future in self._waiting:
            if future.done():
                continue
            if self.error:
                future.set_result(False)
            elif offset <= flushed:
                future.set_result(True)
            else:
                still.append((offset, future))
        self._waiting = still
        if still:
            self._thread.wakeup()


class ConsumeQueueFlusher:
    """Syncs the queues that changed.

    Args:
        changed: gives the files to sync, and forgets them.
        interval_s: how often it looks.
        last_stored: gives the store time of the last message in ms; asked before each round.
        on_flushed: called on the flush thread after each round with the store time asked before it, or ``None`` once a
            sync has failed: a later one that succeeds does not mean that what it left out is on disk.
    """

    def __init__(
        self,
        changed: Callable[[], Generator[MappedFile]],
        interval_s: float,
        last_stored: Callable[[], int],
        on_flushed: Callable[[int | None], None],
    ) -> None:
        self._changed = changed
        self._last_stored = last_stored
        self._on_flushed = on_flushed
        self._thread = ServiceThread("FlushConsumeQueueService", interval_s, self.flush)
        # Why a sync failed; it stays. The next start makes the queues anew from where they were on disk.
        self.error = ""
        self.start = self._thread.start
        self.stop = self._thread.stop

    def flush(self) -> None:
        """Sync what changed; runs on the flush thread. What was not synced is tried again next time."""
        stored = self._last_stored()
        try:
            with contextlib.closing(self._changed()) as files:
                for file in files:
                    wrote = file.wrote
                    file.sync()
                    file.flushed = wrote
        except OSError as error:
            if not self.error:
                log.exception("a queue could not be synced; the queues are checked at the next start")
            self.error = f"a queue could not be synced: {error.strerror}"
        self._on_flushed(None if self.error else stored)
