"""A broker's parts of POP over a store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.pop_broker import PopBroker
from tests.support.running import running


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    """A broker with topic T of two queues."""
    async with running(PopBroker(tmp_path / "store", mapped_file_size_consume_queue=20_000)) as found:
        yield found
