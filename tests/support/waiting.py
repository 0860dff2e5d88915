"""Waiting for what happens elsewhere, with a deadline."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.005)
