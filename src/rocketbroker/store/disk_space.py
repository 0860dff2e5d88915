"""How full the disks of the store are (UtilAll.getDiskPartitionSpaceUsedPercent, CleanCommitLogService)."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.config import MessageStoreConfig

# Gives the used share of the disk that a folder is on, 0 to 100.
UsedPercent = Callable[[Path], float]


def disk_of(path: Path) -> os.statvfs_result:
    """The disk that a folder is on, or will be once it is made (blocks).

    Raises:
        OSError: the disk cannot be asked.
    """
    for folder in (path, *path.parents):
        with contextlib.suppress(FileNotFoundError):
            return os.statvfs(folder)
    raise FileNotFoundError(f"neither {path} nor any folder above it exists")


def used_ratio(disk: os.statvfs_result) -> float:
    """Used share of what users may have of a disk, in hundredths, rounded up."""
    used = disk.f_blocks - disk.f_bfree
    return -(-used * 100 // max(used + disk.f_bavail, 1)) / 100


def used_percent(path: Path) -> float:
    """Used share of what users may have of the disk of a folder, 0 to 100 (blocks).

    Raises:
        OSError: the disk cannot be asked.
    """
    disk = disk_of(path)
    used = disk.f_blocks - disk.f_bfree
    return used * 100 / max(used + disk.f_bavail, 1)


class FullestDisk(NamedTuple):
    """The fuller one of the disks of commit log and consume queues: a folder on it, and its used share, 0 to 100."""

    path: Path
    percent: float

    def above(self, limit: int, name: str) -> str:
        """Says that it is fuller than the setting ``name`` allows; empty when it is not."""
        if self.percent <= limit:
            return ""
        return f"the disk of {self.path} is {self.percent:.1f} % full, which is more than {limit} % ({name})"


def look_at_disks(config: MessageStoreConfig, used: UsedPercent = used_percent) -> FullestDisk:
    """The fuller one of the disks (blocks).

    Raises:
        OSError: a disk cannot be asked.
    """
    disks = [FullestDisk(path, used(path)) for path in (config.commit_log_dir, config.consume_queue_dir)]
    return max(disks, key=lambda disk: disk.percent)
