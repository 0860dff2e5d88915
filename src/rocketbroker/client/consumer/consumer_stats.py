"""Rates of one consumer by topic (org.apache.rocketmq.client.stat.ConsumerStatsManager)."""

import math
from collections import defaultdict, deque

import msgspec

from rocketbroker.codec.remoting.bodies.client import ConsumeStatus
from rocketbroker.common.clock import Clock

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_BUCKET_S = 10.0


class _Bucket(msgspec.Struct):
    start: float
    sum: float = 0.0
    times: int = 0


class RecentSum:
    """Sum and number of the values of the last ``window_s`` seconds, in steps of 10 s."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._buckets: deque[_Bucket] = deque()
        self._last = _Bucket(-math.inf)

    def add(self, value: float, times: int, now: float) -> None:
        """Add a value that stands for ``times`` events."""
        last = self._last
        if now - last.start >= _BUCKET_S:
            self._forget(now)
            last = self._last = _Bucket(now - now % _BUCKET_S)
            self._buckets.append(last)
        last.sum += value
        last.times += times

    def total(self, now: float) -> tuple[float, int]:
        """Return the sum and the number of events."""
        self._forget(now)
        return sum(each.sum for each in self._buckets), sum(each.times for each in self._buckets)

    def _forget(self, now: float) -> None:
        while self._buckets and self._buckets[0].start < now - self._window_s:
            self._buckets.popleft()


class _Topic:
    def __init__(self) -> None:
        self.pulls = RecentSum(_MINUTE_S)
        self.pulled = RecentSum(_MINUTE_S)
        self.consumed = RecentSum(_MINUTE_S)
        self.failed = RecentSum(_HOUR_S)


class ConsumerStats:
    """Counts pulls and consumed messages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: defaultdict[str, _Topic] = defaultdict(_Topic)

    def add_pull(self, topic: str, seconds: float, messages: int) -> None:
        """Count a pull that found messages."""
        stats, now = self._topics[topic], self._clock.monotonic()
        stats.pulls.add(seconds * 1000, 1, now)
        stats.pulled.add(messages, messages, now)

    def add_consumed(self, topic: str, start: float, *, failed: bool) -> None:
        """Count a message whose consumption, begun at a monotonic time, ends now or has failed."""
        stats, now = self._topics[topic], self._clock.monotonic()
        if failed:
            stats.failed.add(1, 1, now)
        else:
            stats.consumed.add((now - start) * 1000, 1, now)

    def status(self) -> dict[str, ConsumeStatus]:
        """Return the rates of each topic: times in ms, messages in a second, failures of the last hour."""
        now = self._clock.monotonic()
        return {topic: self._status(stats, now) for topic, stats in sorted(self._topics.items())}

    @staticmethod
    def _status(stats: _Topic, now: float) -> ConsumeStatus:
        pull_ms, pulls = stats.pulls.total(now)
        consume_ms, consumed = stats.consumed.total(now)
        _, failed = stats.failed.total(now)
        return ConsumeStatus(
            pull_rt=pull_ms / pulls if pulls else 0.0,
            pull_tps=stats.pulled.total(now)[0] / _MINUTE_S,
            consume_rt=consume_ms / consumed if consumed else 0.0,
            consume_ok_tps=consumed / _MINUTE_S,
            consume_failed_tps=failed / _HOUR_S,
            consume_failed_msgs=failed,
        )
