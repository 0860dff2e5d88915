"""Periodic cleaning, every ``cleanResourceInterval`` (DefaultMessageStore.cleanFilesPeriodically)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.clean.clean_commit_log_service import (
    CleanCommitLogService,
    CleanedStore,
    FirstPending,
    QueueRange,
)
from rocketbroker.store.clean.clean_consume_queue_service import CleanConsumeQueueService
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.clean.disk_space import MeasureDisk, measure_disk
from rocketbroker.store.clean.disk_watch import DiskWatch
from rocketbroker.store.index.index_service import IndexService

# Interval while sends are rejected, or the room of a removed file is not free yet.
_HURRY_MS = 1000


class IndexedStore(CleanedStore, Protocol):
    """A message store with an index."""

    index_service: IndexService | None


class CleanFilesService:
    """Runs both cleaning services, one round at a time, and the disk watch.

    Start it after the store and stop it before the store.

    Args:
        store: the store.
        clock: clock of the expiry.
        unconsumed: argument of ``CleanCommitLogService``.
        measure: measures the disks.
        pending: argument of ``CleanCommitLogService``.
    """

    def __init__(
        self,
        store: IndexedStore,
        clock: Clock,
        unconsumed: Callable[[Sequence[QueueRange]], list[str]],
        measure: MeasureDisk = measure_disk,
        pending: Sequence[FirstPending] = (),
    ) -> None:
        self._config = store.config
        self._clock = clock
        self._thread = CleanThread(clock)
        self._watch = DiskWatch(store.config, store.refusals, clock, measure)
        self._commit_log = CleanCommitLogService(store, clock, self._thread, self._watch, unconsumed, pending)
        self._consume_queue = CleanConsumeQueueService(store, store.index_service, clock, self._thread)
        self._round = asyncio.Lock()
        self._next_at = 0.0
        self._tasks = TaskOwner("CleanFilesService")

    async def start(self) -> None:
        """Start the rounds; the store must be open.

        Raises:
            StoreError: A disk cannot be measured.
        """
        await self._watch.start()
        self._tasks.every(TICK_S, self._clean_when_due, "clean")

    async def stop(self) -> None:
        """Stop after the file that is being removed."""
        await self._tasks.stop()
        await self._thread.stop()
        await self._watch.stop()

    def delete_files_manually(self) -> None:
        """Request the removal of expired CommitLog files at any hour; return before it happens."""
        self._commit_log.delete_files_manually()
        self._next_at = 0.0

    async def clean_expired_consume_queue(self) -> str:
        """Remove queue and index files of expired messages; return the failed removals as a text, or ""."""
        async with self._round:
            return await self._consume_queue.clean(again=True)

    async def clean(self) -> None:
        """Run one round.

        Raises:
            OSError: A disk cannot be measured.
        """
        async with self._round:
            await self._commit_log.clean()
            await self._consume_queue.clean()

    async def _clean_when_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        interval = self._config.clean_resource_interval
        self._next_at = now + interval / 1000
        await self.clean()
        if self._watch.refusing or self._thread.holds_files:
            self._next_at = now + min(interval, _HURRY_MS) / 1000
