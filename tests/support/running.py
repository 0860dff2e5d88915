"""Servers, clients and stores that end with their block, however it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar


class Stoppable(Protocol):
    async def stop(self) -> None: ...


class Startable(Stoppable, Protocol):
    async def start(self) -> Any: ...


Stopping = TypeVar("Stopping", bound=Stoppable)
Running = TypeVar("Running", bound=Startable)


@asynccontextmanager
async def stopping(part: Stopping) -> AsyncIterator[Stopping]:
    """Stop a part that needs no start, or whose start is the test's own."""
    try:
        yield part
    finally:
        await part.stop()


@asynccontextmanager
async def running(part: Running) -> AsyncIterator[Running]:
    """Start a part, and stop it; also after a start that failed."""
    async with stopping(part):
        await part.start()
        yield part
