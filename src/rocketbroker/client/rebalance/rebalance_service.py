"""Rebalancing at once when it is wanted, and regularly (org.apache.rocketmq.client.impl.consumer.RebalanceService)."""

import asyncio
from collections.abc import Awaitable, Callable

from rocketbroker.common.lifecycle import TaskOwner

# Seconds before an incomplete rebalance is repeated: at first, and at most.
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0


class RebalanceService:
    """Runs a rebalance when woken, at least every ``interval_s`` seconds, and soon again while it is incomplete.

    Args:
        rebalance: rebalances all topics; returns false if something was not available yet.
        interval_s: seconds between rebalances (rebalanceInterval).
    """

    def __init__(self, rebalance: Callable[[], Awaitable[bool]], interval_s: float) -> None:
        self._rebalance = rebalance
        self._interval_s = interval_s
        self._pause_s = _FIRST_PAUSE_S
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._tasks = TaskOwner("rebalance-service")

    async def start(self) -> None:
        """Start rebalancing."""
        self._tasks.whenever(self._run, _LAST_PAUSE_S, "rebalance")

    async def stop(self) -> None:
        """Stop rebalancing."""
        await self._tasks.stop()

    def wakeup(self) -> None:
        """Rebalance soon."""
        self._pause_s = _FIRST_PAUSE_S
        self._wanted.set()

    async def now(self) -> None:
        """Rebalance once, and again soon if it was incomplete."""
        async with self._lock:
            complete = await self._rebalance()
        if not complete:
            self.wakeup()

    async def _run(self) -> float:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._wanted.wait()
        except TimeoutError:
            pass
        self._wanted.clear()
        complete = False
        try:
            async with self._lock:
                complete = await self._rebalance()
        finally:
            if not complete:
                self._wanted.set()
        pause_s = 0.0 if complete else self._pause_s
        self._pause_s = _FIRST_PAUSE_S if complete else min(2 * self._pause_s, _LAST_PAUSE_S)
        return pause_s
