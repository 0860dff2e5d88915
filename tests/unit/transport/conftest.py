"""All tests of the transport run on plain asyncio in debug mode and on uvloop."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.running import running
from tests.support.transports import Handlers


def debugging_loop() -> asyncio.AbstractEventLoop:
    """A loop of asyncio that checks its callers."""
    loop = asyncio.SelectorEventLoop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Called by pytest-asyncio."""
    return {"asyncio": debugging_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def server(handlers: Handlers) -> AsyncIterator[RemotingServer]:
    async with running(RemotingServer(handlers.routes(), host="127.0.0.1")) as made:
        yield made
