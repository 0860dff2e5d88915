"""Counters with windows of the last minute, hour and day (org.apache.rocketmq.common.stats.StatsItem)."""

from collections import deque
from typing import NamedTuple

# Samples in a window, and ticks of 10 s between them; n samples enclose n - 1 such intervals.
MINUTE = (7, 1)
HOUR = (7, 60)
DAY = (25, 360)


class StatsSnapshot(NamedTuple):
    """One window: the ``sum``, the sum per second (``tps``) and the sum per call (``avgpt``)."""

    sum: int
    tps: float
    avgpt: float


class StatsData(NamedTuple):
    """The windows of one item (BrokerStatsData)."""

    stats_minute: StatsSnapshot
    stats_hour: StatsSnapshot
    stats_day: StatsSnapshot


class _Sample(NamedTuple):
    time_ms: int
    nums: int
    times: int
    size: int


class StatsItem:
    """Counts of one topic, group or broker. The hot path adds to the four numbers and does nothing else.

    Attributes:
        nums: messages.
        times: requests that put or got messages.
        size: bytes.
        misses: requests that got none, or whose messages the store rejected.
    """

    __slots__ = ("_windows", "misses", "nums", "size", "times")

    def __init__(self, now_ms: int) -> None:
        self.nums = 0
        self.times = 0
        self.size = 0
        self.misses = 0
        start = _Sample(now_ms, 0, 0, 0)
        self._windows = tuple(deque([start], maxlen=length) for length, _ in (MINUTE, HOUR, DAY))

    def add(self, nums: int, size: int, times: int = 1) -> None:
        """Count requests that put or got messages."""
        self.nums += nums
        self.times += times
        self.size += size

    def clear(self, now_ms: int) -> None:
        """Reset the counts and the windows."""
        self.nums = self.times = self.size = self.misses = 0
        for window in self._windows:
            window.clear()
            window.append(_Sample(now_ms, 0, 0, 0))

    def sample(self, now_ms: int, tick: int) -> None:
        """Sample the numbers; called every 10 s with the number of the call."""
        for window, (_, every) in zip(self._windows, (MINUTE, HOUR, DAY), strict=True):
            if tick % every == 0:
                window.append(_Sample(now_ms, self.nums, self.times, self.size))

    @property
    def is_idle(self) -> bool:
        """True if the day window is full and has no messages."""
        day = self._windows[-1]
        return len(day) == DAY[0] and self.times == day[0].times

    def nums_data(self, now_ms: int) -> StatsData:
        """Return the number of messages in the last minute, hour and day."""
        return StatsData(*(self._snapshot(window[0], self.nums - window[0].nums, now_ms) for window in self._windows))

    def size_data(self, now_ms: int) -> StatsData:
        """Return the number of bytes in the last minute, hour and day."""
        return StatsData(*(self._snapshot(window[0], self.size - window[0].size, now_ms) for window in self._windows))

    def _snapshot(self, first: _Sample, total: int, now_ms: int) -> StatsSnapshot:
        times = self.times - first.times
        tps = total * 1000.0 / (now_ms - first.time_ms) if now_ms > first.time_ms else 0.0
        return StatsSnapshot(total, tps, total / times if times else 0.0)
