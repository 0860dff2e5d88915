"""Fixtures of the property and crash tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.store.flush import flush_service
from rocketbroker.transport import frame_reader
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


@pytest.fixture(autouse=True, scope="session")
def _long_turns() -> Iterator[None]:
    """Give the requests of a read event the time for all of them, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_reader, "_TURN_S", 60.0)
        yield
