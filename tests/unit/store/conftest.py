"""A store with messages over several files of each kind, for what is done to such a one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes import FakeClock
from tests.support.filled_store import Filled, fill
from tests.support.stores import crash_copy


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
