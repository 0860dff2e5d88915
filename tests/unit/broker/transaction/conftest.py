"""A broker's transactions over a store with small files, whose time stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_id import host_bytes
from tests.support.transactions import Transactions

STORE_HOST = host_bytes("127.0.0.1", 10911)


@pytest.fixture
async def transactions(tmp_path: Path) -> AsyncIterator[Transactions]:
    """Transactions of a broker that has just started on an empty store."""
    found = await Transactions.open(tmp_path / "store")
    yield found
    await found.close()
