"""Waiting for what happens elsewhere. The limit only ends a failed test: no limit here measures speed."""

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 60.0  # on a machine that may have other work


async def until(condition: Callable[[], object], timeout_s: float = LIMIT_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - nothing signals the change
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S, interval_s: float = 0.05) -> None:
    """Block until a condition holds.

    Args:
        condition: checked after each interval.
        what: the condition in words, for the failure.
        limit_s: how long to wait.
        interval_s: pause between two checks.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(interval_s)


async def turns(count: int = 50) -> None:
    """Let the event loop run so many turns: what must not happen would have happened by then, whatever the machine."""
    for _ in range(count):
        await asyncio.sleep(0)
