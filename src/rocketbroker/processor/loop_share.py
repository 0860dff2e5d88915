"""Turns for others amid long work on the event loop."""

import asyncio
import time

# Work that takes longer than this is interrupted: what is read meanwhile waits no longer.
HELD_S = 0.01


class LoopShare:
    """The share of the loop that one request takes at a time."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def turn(self) -> None:
        """Let others run if this request has held the loop for long enough."""
        if time.perf_counter() - self._since > HELD_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
