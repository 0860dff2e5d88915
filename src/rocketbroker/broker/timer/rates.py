"""Rates at which timer messages are read from their queue and delivered (PerfCounter)."""


class Rates:
    """Messages per second between the last two measurements."""

    def __init__(self) -> None:
        self.taken_in = self.delivered = 0.0
        self._last = (0.0, 0, 0)

    def measure(self, now_s: float, taken_in: int, delivered: int) -> None:
        """Compute the rates from two counters."""
        then_s, taken_in_then, delivered_then = self._last
        if then_s and now_s > then_s:
            self.taken_in = (taken_in - taken_in_then) / (now_s - then_s)
            self.delivered = (delivered - delivered_then) / (now_s - then_s)
        self._last = now_s, taken_in, delivered
