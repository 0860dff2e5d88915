"""Memory that one connection holds between events, as accounted at its endpoint."""

from collections.abc import Callable


class HeldMemory:
    """Account of incomplete frames, bodies of pending requests and unsent answers.

    Args:
        measure: returns the bytes held now.
        on_change: called with each change, in bytes.
        time: time of the event loop.

    Attributes:
        bytes: memory held, as last accounted.
        since: time of the last progress while holding memory.
        is_settled: nothing was held when last accounted, and nothing of size has come since.
    """

    def __init__(self, measure: Callable[[], int], on_change: Callable[[int], None], time: Callable[[], float]) -> None:
        self._measure = measure
        self._on_change = on_change
        self._time = time
        self.bytes = 0
        self.since = 0.0
        self.is_settled = True

    def settle(self, *, progressed: bool = False) -> None:
        """Account for the memory held until a later event."""
        held = self._measure()
        if progressed or not self.bytes:
            self.since = self._time()
        change, self.bytes = held - self.bytes, held
        self.is_settled = held == 0
        if change:
            self._on_change(change)
