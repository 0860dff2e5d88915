"""Rejection of sends while a disk is nearly full (DefaultMessageStore.CleanCommitLogService.isSpaceFull)."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.clean.disk_space import FullestDisk, MeasureDisk, look_at_disks
from rocketbroker.store.flush.write_refusal import Refusal, StandingRefusals

log = logging.getLogger(__name__)

# Interval while sends are rejected.
_REFUSING_MS = 1000


class DiskWatch:
    """Measures the disks every ``cleanResourceInterval``, on a dedicated thread.

    So neither the pauses of a cleaning round nor a long removal delays rejecting or accepting sends.

    Args:
        config: the limits.
        refusals: receives the reason to reject sends.
        clock: clock of the interval.
        measure: measures the disks.
    """

    def __init__(
        self, config: MessageStoreConfig, refusals: StandingRefusals, clock: Clock, measure: MeasureDisk
    ) -> None:
        self._config = config
        self._refusals = refusals
        self._clock = clock
        self._measure = measure
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="DiskCheckScheduledThread")
        self._tasks = TaskOwner("DiskWatch")
        self._next_at = 0.0
        self.refusing = False

    async def start(self) -> None:
        """Measure once, so that even the first send can be rejected, and then periodically.

        Raises:
            StoreError: A disk cannot be asked.
        """
        try:
            await self._look_when_due()
        except OSError as error:
            raise StoreError(f"store: cannot measure its disks: {error}") from error
        self._tasks.every(TICK_S, self._look_when_due, "look")

    async def stop(self) -> None:
        """Stop; sends stay rejected if they were."""
        await self._tasks.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def look(self) -> FullestDisk:
        """Measure the disks, reject or accept sends accordingly, and return the fuller disk.

        Raises:
            OSError: A disk cannot be measured.
        """
        config = self._config
        disk = await asyncio.get_running_loop().run_in_executor(self._executor, look_at_disks, config, self._measure)
        full = disk.above(config.disk_space_warning_level_ratio, "diskSpaceWarningLevelRatio")
        if full and not self.refusing:
            log.error("%s: sends are rejected until space is freed; pulls continue", full)
        elif self.refusing and not full:
            log.warning("sends are accepted again: the disk of %s is %.1f %% full", disk.path, disk.percent)
        self.refusing = bool(full)
        if full:
            self._refusals.set(Refusal.DISK_FULL, full)
        else:
            self._refusals.clear(Refusal.DISK_FULL)
        return disk

    async def _look_when_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        interval = self._config.clean_resource_interval
        self._next_at = now + interval / 1000
        await self.look()
        if self.refusing:
            self._next_at = now + min(interval, _REFUSING_MS) / 1000
