"""An empty store, and one with messages over several files of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.filled_store import Filled, fill
from tests.support.running import running
from tests.support.stores import Waiter, crash_copy, make_store


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Filled]:
    """It runs."""
    made = await fill(tmp_path / "store", FakeClock())
    yield made
    await made.store.stop()


@pytest.fixture
def killed(filled: Filled, tmp_path: Path) -> Path:
    """The store as a kill would leave it."""
    return crash_copy(filled.root, tmp_path / "killed")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock, waiter: Waiter) -> AsyncIterator[MessageStore]:
    made = make_store(tmp_path / "store", clock, waiter)
    async with running(made):
        yield made
