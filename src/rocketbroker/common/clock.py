"""Source of time, which tests can replace."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time and monotonic time."""

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()
