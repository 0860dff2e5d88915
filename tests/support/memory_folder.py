"""Folders in memory, for tests that write many stores and play themselves what a disk does."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; these tests use less than a tenth of it


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """Make a folder in memory and remove it in the end; use another one if there is no room."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="rocketbroker-test-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
