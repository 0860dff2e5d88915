"""Parts of a commit log that are read independently."""

import logging
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rocketbroker.analytics.commit_log_files import commit_log_files
from rocketbroker.common.file_window import CommitLogFile

#: Default size of a split in bytes.
SPLIT_SIZE = 64 << 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Split:
    """The records that start at positions ``low`` to below ``high`` of ``file``; ``last`` if no file with data follows.

    What becomes of bytes between two records is said by the split that owns the record before them, so any division
    of a file gives the same messages and the same report.
    """

    file: CommitLogFile
    low: int
    high: int
    last: bool


def plan_splits(store_dir: str | Path, split_size: int = SPLIT_SIZE) -> list[Split]:
    """The splits of a store, ascending, bounded by what is written at the time of the call."""
    files = [file for file in commit_log_files(store_dir) if file.data_end]
    _warn_of_gaps(files)
    return [
        Split(file, low, min(low + split_size, file.data_end), file is files[-1])
        for file in files
        for low in range(0, file.data_end, split_size)
    ]


def _warn_of_gaps(files: list[CommitLogFile]) -> None:
    for before, after in pairwise(files):
        if before.base + before.size != after.base:
            logger.warning(
                "%s ends at offset %d and %s begins at %d: what was between them is not read",
                before.path,
                before.base + before.size,
                after.path,
                after.base,
            )
