"""Clocks that a test sets while the broker runs, and the event loop whose timers follow one."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError

_NS = 1_000_000_000


class ClockError(RocketBrokerError, ValueError):
    """A clock that a test moves cannot go back."""


class _Reading(NamedTuple):
    """Reading of both clocks at a time of the system's monotonic clock, in ns, with their speed."""

    taken_at: int
    wall: int
    monotonic: int
    speed: float


class ControlledClock:
    """Clock that starts with the system's time and speed.

    Its state is one value that is replaced, so that any thread may read it at any time.
    """

    def __init__(self) -> None:
        now = time.monotonic_ns()
        self._reading = _Reading(now, SystemClock().time_ms() * 1_000_000, now, 1.0)

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""
        reading = self._reading
        return (reading.wall + _passed(reading)) // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        reading = self._reading
        return (reading.monotonic + _passed(reading)) / _NS

    def step(self, seconds: float) -> None:
        """Step the wall clock forward or back; the monotonic clock does not change."""
        self._change(wall_s=seconds)

    def set_time(self, time_ms: float) -> None:
        """Step the wall clock to a time in ms since the epoch, with a precision of 1 µs."""
        # A float of today's time is exact to the µs, not the ns, and one missing ns would change the ms.
        self._change(wall=round(time_ms * 1000) * 1000)

    def advance(self, seconds: float) -> None:
        """Advance both clocks at once.

        Raises:
            ValueError: The time is negative.
        """
        if seconds < 0:
            raise ValueError(f"time cannot pass backward by {seconds} s; step would set the wall clock back")
        self._change(wall_s=seconds, monotonic_s=seconds)

    def run_at(self, speed: float) -> None:
        """Run at a multiple of the system's speed from now on; 0 stops the clock.

        Raises:
            ValueError: The speed is negative.
        """
        if speed < 0:
            raise ValueError(f"a clock cannot run at {speed}; 0 or more would be right")
        self._change(speed=speed)

    def obey(self, command: str) -> None:
        """Run a command: ``step S``, ``set MS``, ``advance S`` or ``speed F``, with a decimal number.

        Raises:
            ValueError: Unknown command.
        """
        verb, _, number = command.strip().partition(" ")
        actions = {"step": self.step, "set": self.set_time, "advance": self.advance, "speed": self.run_at}
        action, value = actions.get(verb), _number(number)
        if action is None or not math.isfinite(value):
            known = "step S, set MS, advance S or speed F"
            raise ValueError(f"{command.strip()!r} is no command of the clock; {known} would be")
        action(value)

    def _change(
        self, wall_s: float = 0.0, monotonic_s: float = 0.0, speed: float | None = None, wall: int | None = None
    ) -> None:
        reading = self._reading
        now = time.monotonic_ns()
        passed = _passed(reading, now)
        self._reading = _Reading(
            now,
            reading.wall + passed + round(wall_s * _NS) if wall is None else wall,
            reading.monotonic + passed + round(monotonic_s * _NS),
            reading.speed if speed is None else speed,
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _passed(reading: _Reading, now: int | None = None) -> int:
    """Return the ns that this clock has advanced since it was set."""
    since = (time.monotonic_ns() if now is None else now) - reading.taken_at
    return since if reading.speed == 1.0 else round(since * reading.speed)


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
