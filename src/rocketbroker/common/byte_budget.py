"""A rate of bytes for work that is worth limiting by its size."""

from rocketbroker.common.clock import Clock

# What was not used is kept for so long.
BURST_S = 10


class ByteBudget:
    """Bytes that may be spent, at a rate, with what was not spent in the last 10 s.

    Args:
        clock: tells how much has come in since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent = 0.0
        self._at = clock.monotonic()

    def take(self, size: int, rate: int) -> bool:
        """Spend bytes unless the budget is spent; the last that are spent may be more than what is left.

        Args:
            size: how many.
            rate: how many come in each second.
        """
        now = self._clock.monotonic()
        self._spent = max(self._spent - (now - self._at) * rate, 0.0)
        self._at = now
        if self._spent >= rate * BURST_S:
            return False
        self._spent += size
        return True
