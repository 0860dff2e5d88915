"""All tests of the transport run on plain asyncio in debug mode and on uvloop."""

import asyncio
from collections.abc import Callable

import uvloop


def debugging_loop() -> asyncio.AbstractEventLoop:
    """A loop of asyncio that checks its callers."""
    loop = asyncio.SelectorEventLoop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Called by pytest-asyncio."""
    return {"asyncio": debugging_loop, "uvloop": uvloop.new_event_loop}
