"""Lag of the event loop: the time for which it kept a timer waiting, which is how long something held it."""

import asyncio
from collections.abc import Iterator
from typing import Final

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.family import Family, gauge, histogram

#: In seconds.
BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_PERIOD_S: Final = 0.02
# The longest hold is that of this window and the one before it.
_WINDOW_S: Final = 60.0


class LoopWatch:
    """Measures how late a timer of 20 ms is, so that each longer hold is seen, but for up to 20 ms of it."""

    def __init__(self) -> None:
        self.lags = Histogram(BOUNDS_S)
        self._longest = [0.0, 0.0]
        self._window_ends = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._window_ends = loop.time() + _WINDOW_S
        self._wait(loop)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def longest_s(self) -> float:
        """The longest lag in the last one or two minutes."""
        return max(self._longest)

    def late(self, lag_s: float, now: float) -> None:
        """Note a lag, at a time of the loop."""
        self.lags.add(lag_s)
        if now >= self._window_ends:
            self._longest = [self._longest[1], 0.0]
            self._window_ends = now + _WINDOW_S
        self._longest[1] = max(self._longest[1], lag_s)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + _PERIOD_S
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.late(max(now - due, 0.0), now)
        self._wait(loop)

    def families(self) -> Iterator[Family]:
        """Yield the metrics."""
        yield histogram(
            "rocketbroker_event_loop_lag_seconds",
            [({}, self.lags)],
            "Time for which the event loop kept a timer waiting.",
        )
        yield gauge(
            "rocketbroker_event_loop_longest_hold_seconds",
            [({}, self.longest_s)],
            "Longest such time in the last one or two minutes.",
        )
