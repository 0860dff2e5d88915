"""Fixture of the pytest plugin that needs pytest-asyncio."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from rocketbroker.client import Producer
    from rocketbroker.testing.rocketmq_server import RocketMQServer


@pytest_asyncio.fixture
async def rocketmq_producer(rocketmq: "RocketMQServer") -> "AsyncIterator[Producer]":
    """A started producer of the group ``rocketmq_producer``."""
    from rocketbroker.client import Producer

    async with Producer("rocketmq_producer", rocketmq.namesrv_addr) as producer:
        yield producer
