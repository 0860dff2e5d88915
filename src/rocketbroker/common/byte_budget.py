"""Rate limit in bytes, for work whose cost grows with its size."""

from rocketbroker.common.clock import Clock

# Seconds for which unused bytes are kept.
BURST_S = 10


class ByteBudget:
    """Token bucket of bytes that holds at most 10 s of its rate.

    Args:
        clock: source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent = 0.0
        self._at = clock.monotonic()

    def take(self, size: int, rate: int) -> bool:
        """Spend bytes and return true, unless the bucket is empty; the last spending may overdraw it.

        Args:
            size: bytes to spend.
            rate: bytes added in a second.
        """
        now = self._clock.monotonic()
        self._spent = max(self._spent - (now - self._at) * rate, 0.0)
        self._at = now
        if self._spent >= rate * BURST_S:
            return False
        self._spent += size
        return True
