"""Usage of the store's disks, and rejection of sends while one is nearly full (CleanCommitLogService.isSpaceFull)."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals

log = logging.getLogger(__name__)


class DiskUse(NamedTuple):
    """Used bytes of a disk, and the bytes that users may have."""

    used: int
    capacity: int

    @property
    def ratio(self) -> float:
        """The used share, in hundredths, rounded up."""
        return -(-self.used * 100 // max(self.capacity, 1)) / 100


# Measures the disk of a folder (blocks).
MeasureDisk = Callable[[Path], DiskUse]


def disk_of(path: Path) -> os.statvfs_result:
    """Measure the disk of a folder, which need not exist yet (blocks).

    Raises:
        OSError: The disk cannot be asked.
    """
    for folder in (path, *path.parents):
        with contextlib.suppress(FileNotFoundError):
            return os.statvfs(folder)
    raise FileNotFoundError(f"neither {path} nor any folder above it exists")


def measure_disk(path: Path) -> DiskUse:
    """Measure the disk of a folder (blocks).

    Raises:
        OSError: The disk cannot be asked.
    """
    disk = disk_of(path)
    used = disk.f_blocks - disk.f_bfree
    return DiskUse(used * disk.f_frsize, (used + disk.f_bavail) * disk.f_frsize)


class FullestDisk(NamedTuple):
    """Fuller one of the disks of CommitLog and ConsumeQueues, and a folder on it."""

    path: Path
    use: DiskUse

    @property
    def percent(self) -> float:
        """The used share, 0 to 100."""
        return self.use.used * 100 / max(self.use.capacity, 1)

    def above(self, limit: int, name: str, coming: int = 0) -> str:
        """Return a text if the disk is fuller than a setting allows, else an empty one.

        Args:
            limit: limit in percent.
            name: name of the setting.
            coming: bytes that will be free soon.
        """
        if self.percent <= limit or (self.use.used - coming) * 100 <= limit * self.use.capacity:
            return ""
        return f"the disk of {self.path} is {self.percent:.1f} % full, above the limit of {limit} % ({name})"


def look_at_disks(config: MessageStoreConfig, measure: MeasureDisk = measure_disk) -> FullestDisk:
    """Measure the disks and return the fuller one (blocks).

    Raises:
        OSError: A disk cannot be asked.
    """
    disks = [FullestDisk(path, measure(path)) for path in (config.commit_log_dir, config.consume_queue_dir)]
    return max(disks, key=lambda disk: disk.percent)


# Interval while sends are rejected.
_REFUSING_MS = 1000


class DiskWatch:
    """Measures the disks every ``cleanResourceInterval``, on a dedicated thread.

    So neither the pauses of a cleaning round nor a long removal delays rejecting or accepting sends.
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
