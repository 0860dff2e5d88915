"""Fixtures of the crash tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.store.flush import flush_service

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; these tests use less than a tenth of it


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is room: these tests write many stores, and play themselves what a disk does."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="rocketbroker-test-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def no_flush_by_itself(monkeypatch) -> None:
    """The disk is synced where a script says so, so that a seed gives one journal."""
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)
