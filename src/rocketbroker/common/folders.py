"""Names on disk: a file that was made, renamed or removed is so after a crash only once its folder is synced."""

import contextlib
import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Write a folder's names to disk (blocks); one that is gone has none.

    Raises:
        OSError: the disk refused.
    """
    with contextlib.suppress(FileNotFoundError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
