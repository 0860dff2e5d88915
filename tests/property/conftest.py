"""Fixtures of the property and crash tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.store.flush import flush_service
from tests.support.memory_folder import memory_folder


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is room."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def no_flush_by_itself(monkeypatch) -> None:
    """The disk is synced where a script says so, so that a seed gives one journal."""
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)
