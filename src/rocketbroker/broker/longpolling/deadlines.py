"""Deadlines of many items on one timer of the event loop."""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_TICK_S = 0.05
# Empty ticks are dropped once they outnumber the others by this.
_MOST_STALE = 1_024

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Items grouped by the 50 ms tick at which they are due.

    Items due at once cost one call; a timer for each would block the event loop until all had been called.

    Args:
        due: called with the items that are due, which are then forgotten.
    """

    def __init__(self, due: Callable[[Iterable[T]], None]) -> None:
        self._due = due
        self._items: dict[int, set[T]] = {}
        # A heap; ticks without items are skipped.
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def add(self, item: T, seconds: float) -> int:
        """Schedule an item and return its key for ``discard``."""
        tick = int((asyncio.get_running_loop().time() + seconds) / _TICK_S) + 1
        items = self._items.get(tick)
        if items is None:
            items = self._items[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        items.add(item)
        return tick

    def discard(self, item: T, tick: int) -> None:
        """Forget an item."""
        items = self._items.get(tick)
        if items is None:
            return
        items.discard(item)
        if not items:
            del self._items[tick]
            if len(self._ticks) > 2 * len(self._items) + _MOST_STALE:
                self._ticks = list(self._items)
                heapq.heapify(self._ticks)

    def stop(self) -> None:
        """Forget all items."""
        self._items.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._timer = asyncio.get_running_loop().call_at(self._ticks[0] * _TICK_S, self._run)

    def _run(self) -> None:
        now = int(asyncio.get_running_loop().time() / _TICK_S)
        while self._ticks and self._ticks[0] <= now:
            items = self._items.pop(heapq.heappop(self._ticks), None)
            if items:
                self._due(items)
        self._set_timer()
