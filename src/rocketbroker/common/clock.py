"""Where time comes from, so that tests can replace it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time and monotonic time."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()
