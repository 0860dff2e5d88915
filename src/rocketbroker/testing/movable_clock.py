"""Clock of a RocketMQServer, and the event loop whose timers follow it."""

import asyncio
from collections.abc import Callable

from rocketbroker.common.clock import SystemClock
from rocketbroker.testing.controlled_clock import ControlledClock
from rocketbroker.testing.errors import ClockError

_MOST_S = 10 * 365 * 86_400


class MovableClock:
    """Clock that runs with the system's, and that a test moves forward.

    Args:
        moved: called after each move.
    """

    def __init__(self, moved: Callable[[], None]) -> None:
        self._clock = ControlledClock()
        self._moved = moved

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._clock.time_ms()

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return self._clock.monotonic()

    def advance(self, seconds: float) -> None:
        """Move the server's time forward: what falls due meanwhile happens at once.

        Raises:
            ClockError: The time is negative, or more than ten years.
            ServerStateError: The server does not run.
        """
        if not 0 <= seconds <= _MOST_S:
            raise ClockError(f"the clock cannot advance by {seconds} s; give 0 to {_MOST_S:,} s")
        self._clock.advance(seconds)
        self._moved()

    def set_back(self) -> None:
        """Return to the system's time, while no server runs that would see it. ``monotonic`` never goes back."""
        self._clock.set_time(SystemClock().time_ms())


class ClockedEventLoop(asyncio.SelectorEventLoop):
    """Event loop whose timers follow a clock."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        """Return the time of the clock."""
        return self._clock.monotonic()
