"""Usage of the store's disks (UtilAll.getDiskPartitionSpaceUsedPercent, CleanCommitLogService)."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.config import MessageStoreConfig


class DiskUse(NamedTuple):
    """Used bytes of a disk, and the bytes that users may have."""

    used: int
    capacity: int


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


def used_ratio(disk: os.statvfs_result) -> float:
    """Return the used share of the bytes that users may have, in hundredths, rounded up."""
    used = disk.f_blocks - disk.f_bfree
    return -(-used * 100 // max(used + disk.f_bavail, 1)) / 100


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
