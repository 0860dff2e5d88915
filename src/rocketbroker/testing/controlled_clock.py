"""A clock that a test sets while the broker runs."""

import math
import time
from typing import NamedTuple

from rocketbroker.common.clock import SystemClock

_NS = 1_000_000_000


class _Reading(NamedTuple):
    """What both clocks showed at a moment of the system's monotonic clock, all in ns, and how fast they run."""

    taken_at: int
    wall: int
    monotonic: int
    speed: float


class ControlledClock:
    """Starts at the system's time, and runs as fast, until it is told otherwise.

    All of what it shows is one value that is replaced, so that threads of the store may look at any time.
    """

    def __init__(self) -> None:
        now = time.monotonic_ns()
        self._reading = _Reading(now, SystemClock().time_ms() * 1_000_000, now, 1.0)

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""
        reading = self._reading
        return (reading.wall + _passed(reading)) // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        reading = self._reading
        return (reading.monotonic + _passed(reading)) / _NS

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; the monotonic clock knows nothing of it."""
        self._change(wall_s=seconds)

    def set_time(self, time_ms: float) -> None:
        """Set the wall clock to a time in ms since the epoch, to the µs, as ``step`` does."""
        # A float holds today's µs and not its ns, of which the least too few would make another ms.
        self._change(wall=round(time_ms * 1000) * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass at once, on both clocks.

        Raises:
            ValueError: the time is negative.
        """
        if seconds < 0:
            raise ValueError(f"time cannot pass backward by {seconds} s; step would set the wall clock back")
        self._change(wall_s=seconds, monotonic_s=seconds)

    def run_at(self, speed: float) -> None:
        """Run so many times as fast as the system's clock from now on, 0 for standing still.

        Raises:
            ValueError: the speed is negative.
        """
        if speed < 0:
            raise ValueError(f"a clock cannot run at {speed}; 0 or more would be right")
        self._change(speed=speed)

    def obey(self, command: str) -> None:
        """Do what a line says: ``step S``, ``set MS``, ``advance S`` or ``speed F``, all as decimal numbers.

        Raises:
            ValueError: it is none of them.
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
    """ns on this clock since it was set."""
    since = (time.monotonic_ns() if now is None else now) - reading.taken_at
    return since if reading.speed == 1.0 else round(since * reading.speed)
