"""Counters of topics and groups over the last minute, hour and day (BrokerStatsManager, StatsItem)."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner


class _Window(NamedTuple):
    """Window of a statistic: its length in ms, and the number of sampling ticks of 10 s between two samples."""

    length_ms: int
    every: int


# RocketMQ's windows and intervals: 10 s, 10 min and 1 h. RocketMQ compares the last sample with the first one, so that
# its hour ends up to 10 min ago and its day up to an hour ago. Ours end now, whenever they are asked for. The sample
# before a window's begin and the one after it are up to an interval apart; what was counted between them is shared out
# in proportion to the time. A sum is exact but for that, and the window is never longer than its name says.
WINDOWS = (_Window(60_000, 1), _Window(3_600_000, 60), _Window(86_400_000, 360))
_TICK_MS = 10_000


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
    """Counts at a time; fractions between two samples."""

    time_ms: int
    nums: float
    times: float
    size: float


class StatsItem:
    """Counts of one topic, group or broker. The hot path adds to the four numbers and does nothing else.

    Attributes:
        nums: messages.
        times: requests that put or got messages.
        size: bytes.
        misses: requests that got none, or whose messages the store rejected.
        popped, popped_size: messages and bytes that pops and peeks got; ``nums`` and ``size`` have them too.
    """

    __slots__ = ("_windows", "misses", "nums", "popped", "popped_size", "size", "times")

    def __init__(self, now_ms: int) -> None:
        self.nums = 0
        self.times = 0
        self.size = 0
        self.misses = 0
        self.popped = self.popped_size = 0
        start = _Sample(now_ms, 0, 0, 0)
        # One interval more than the window: its begin lies within the first one.
        self._windows = tuple(
            deque([start], maxlen=window.length_ms // (window.every * _TICK_MS) + 1) for window in WINDOWS
        )

    def add(self, nums: int, size: int, times: int = 1) -> None:
        """Count requests that put or got messages."""
        self.nums += nums
        self.times += times
        self.size += size

    def add_popped(self, nums: int, size: int) -> None:
        """Count a pop or a peek that got messages."""
        self.add(nums, size)
        self.popped += nums
        self.popped_size += size

    def clear(self, now_ms: int) -> None:
        """Reset the counts and the windows."""
        self.nums = self.times = self.size = self.misses = self.popped = self.popped_size = 0
        for window in self._windows:
            window.clear()
            window.append(_Sample(now_ms, 0, 0, 0))

    def sample(self, now_ms: int, windows: int) -> None:
        """Sample the numbers for the first windows."""
        sample = _Sample(now_ms, self.nums, self.times, self.size)
        for window in self._windows[:windows]:
            window.append(sample)

    @property
    def is_idle(self) -> bool:
        """True if the day window is full and has no messages."""
        day = self._windows[-1]
        return len(day) == day.maxlen and self.times == day[0].times

    def nums_data(self, now_ms: int) -> StatsData:
        """Return the number of messages in the last minute, hour and day."""
        begins = self._begins(now_ms)
        return StatsData(*(self._snapshot(begin, self.nums - begin.nums, now_ms) for begin in begins))

    def size_data(self, now_ms: int) -> StatsData:
        """Return the number of bytes in the last minute, hour and day."""
        begins = self._begins(now_ms)
        return StatsData(*(self._snapshot(begin, self.size - begin.size, now_ms) for begin in begins))

    def _begins(self, now_ms: int) -> Iterator[_Sample]:
        """Yield the counts at the begin of each window."""
        for samples, window in zip(self._windows, WINDOWS, strict=True):
            yield _count_at(samples, now_ms - window.length_ms, _Sample(now_ms, self.nums, self.times, self.size))

    def _snapshot(self, begin: _Sample, total: float, now_ms: int) -> StatsSnapshot:
        times = self.times - begin.times
        tps = total * 1000.0 / (now_ms - begin.time_ms) if now_ms > begin.time_ms else 0.0
        return StatsSnapshot(round(total), tps, total / times if times else 0.0)


def _count_at(samples: Sequence[_Sample], time_ms: int, now: _Sample) -> _Sample:
    """Return the counts at a time: between two samples in proportion, before the first one as at that one."""
    before = samples[0]
    if time_ms <= before.time_ms:
        return before
    for after in (*islice(samples, 1, None), now):
        if after.time_ms >= time_ms:
            share = (time_ms - before.time_ms) / (after.time_ms - before.time_ms)
            return _Sample(
                time_ms,
                *(old + (new - old) * share for old, new in zip(before[1:], after[1:], strict=True)),
            )
        before = after
    return now  # the clock went back since


# Counters of puts and gets by topic, group and broker (BrokerStatsManager, StoreStatsService, BrokerStats).
#
# The hot path fetches the ``StatsItem`` of its topic or group once and keeps it; everything else is summed up from the
# items every 10 s or on request.

SAMPLE_PERIOD_S = 10.0
FORGET_PERIOD_S = 3600.0
# Most statistics by topic and group. Further groups count for the broker only.
MOST_BY_GROUP = 10_000
TPS_WINDOWS_S = (10, 60, 600)

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_ACK_NUMS = "GROUP_ACK_NUMS"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"


# Items sampled before the loop serves others, at half a microsecond each.
_AT_A_TIME = 2_000


class _Totals(NamedTuple):
    time_ms: int
    put: int
    put_size: int
    get_found: int
    get_miss: int
    got: int


class BrokerStatsManager:
    """Counters of the broker. All methods are for the event loop.

    Attributes:
        meters: counts for metrics, ``None`` while nobody asks for them.
    """

    def __init__(self, clock: Clock, cluster_name: str, meters: MessageMeters | None = None) -> None:
        self._clock = clock
        self.meters = meters
        self._cluster_name = cluster_name
        self._tasks = TaskOwner("BrokerStatsManager")
        self._tick = 0
        now = clock.time_ms()
        self._puts: dict[str, StatsItem] = {}
        self._gets: dict[str, StatsItem] = {}
        self._acks: dict[str, StatsItem] = {}
        self._send_backs: dict[str, StatsItem] = {}
        self._dead_letters: dict[str, StatsItem] = {}
        self._broker_put = StatsItem(now)
        self._broker_get = StatsItem(now)
        # Counts under names that were deleted since.
        self._retired_put = StatsItem(now)
        self._retired_get = StatsItem(now)
        # Pulls of groups that do not exist, whose names clients choose freely, and of groups beyond the limit.
        self.passing_gets = StatsItem(now)
        self._others = StatsItem(now)
        # Tables by topic and group, and where the counts of deleted names are kept.
        self._of_groups: tuple[tuple[dict[str, StatsItem], StatsItem | None], ...] = (
            (self._gets, self._retired_get),
            (self._acks, None),
            (self._send_backs, None),
            (self._dead_letters, None),
        )
        self._totals = deque([self._sum(now)], maxlen=TPS_WINDOWS_S[-1] // int(SAMPLE_PERIOD_S) + 1)
        self._day = self._day_of(now)
        self._mornings = [self._totals[0], self._totals[0]]

    async def start(self) -> None:
        self._tasks.every(SAMPLE_PERIOD_S, self.sample, "sample")
        self._tasks.every(FORGET_PERIOD_S, self.forget_idle, "forget idle")

    async def stop(self) -> None:
        await self._tasks.stop()

    def topic_put(self, topic: str) -> StatsItem:
        """Return the counters of messages put into the topic, to keep and to add to."""
        return self._item(self._puts, topic)

    def group_get(self, topic: str, group: str) -> StatsItem:
        """Return the counters of messages that the group got from the topic; ``misses`` counts pulls that got none."""
        key = f"{topic}@{group}"
        return self._gets.get(key) or self._item_of_group(self._gets, key, self.passing_gets)

    def group_ack(self, topic: str, group: str) -> StatsItem:
        """Return the counters of messages that the group popped and acknowledged."""
        return self._item_of_group(self._acks, f"{topic}@{group}", self._others)

    def send_back(self, topic: str, group: str) -> StatsItem:
        """Return the counters of messages that the group sent back."""
        return self._item_of_group(self._send_backs, f"{topic}@{group}", self._others)

    def dead_letter(self, topic: str, group: str) -> StatsItem:
        """Return the counters of messages of the group that went to its dead-letter topic."""
        return self._item_of_group(self._dead_letters, f"{topic}@{group}", self._others)

    @property
    def gets(self) -> dict[str, StatsItem]:
        """Messages that groups got, by ``topic@group``."""
        return self._gets

    @property
    def dead_letters(self) -> dict[str, StatsItem]:
        """Dead letters by ``topic@group``."""
        return self._dead_letters

    def remove_topic(self, topic: str) -> None:
        """Reset the counters of a deleted topic; the items stay in use for its name."""
        self._retire(topic, topic + "@", "")
        if self.meters is not None:
            self.meters.forget(topic)

    def remove_group(self, group: str) -> None:
        """Reset the counters of a deleted group; the items stay in use for its name."""
        self._retire("", "", "@" + group)

    def view(self, stats_name: str, stats_key: str) -> StatsData | None:
        """Return one statistic; ``None`` if nothing was ever counted under the name and key.

        ``stats_key`` is a topic, ``topic@group``, or the cluster's name for BROKER_PUT_NUMS and BROKER_GET_NUMS.
        """
        now = self._clock.time_ms()
        if stats_name in {BROKER_PUT_NUMS, BROKER_GET_NUMS}:
            self._sum(now)
        item = self._tables().get(stats_name, {}).get(stats_key)
        if item is None or not item.times:
            return None
        return item.size_data(now) if stats_name.endswith("_SIZE") else item.nums_data(now)

    def used(self) -> Iterator[tuple[str, str, StatsData]]:
        """Yield the statistics that ever counted: name, key and windows, as ``view`` returns them."""
        now = self._clock.time_ms()
        self._sum(now)
        for name, table in self._tables().items():
            for key, item in table.items():
                if item.times:
                    yield name, key, item.size_data(now) if name.endswith("_SIZE") else item.nums_data(now)

    def _tables(self) -> dict[str, dict[str, StatsItem]]:
        """Return the items by name of the statistic and key."""
        return {
            TOPIC_PUT_NUMS: self._puts,
            TOPIC_PUT_SIZE: self._puts,
            GROUP_GET_NUMS: self._gets,
            GROUP_GET_SIZE: self._gets,
            GROUP_ACK_NUMS: self._acks,
            SNDBCK_PUT_NUMS: self._send_backs,
            DLQ_PUT_NUMS: self._dead_letters,
            BROKER_PUT_NUMS: {self._cluster_name: self._broker_put},
            BROKER_GET_NUMS: {self._cluster_name: self._broker_get},
        }

    async def sample(self) -> None:
        """Sample all counters; called every 10 s. Others run in between: there may be ten thousands."""
        self._tick += 1
        now = self._clock.time_ms()
        self._totals.append(self._sum(now))
        if self._day_of(now) != self._day:
            self._day = self._day_of(now)
            self._mornings = [self._mornings[1], self._totals[-1]]
        # Each window has a sample less often than the one before it.
        windows = sum(self._tick % window.every == 0 for window in WINDOWS)
        self._broker_put.sample(now, windows)
        self._broker_get.sample(now, windows)
        tables = (self._puts, self._gets, self._acks, self._send_backs, self._dead_letters)
        items = [item for table in tables for item in table.values()]
        for first in range(0, len(items), _AT_A_TIME):
            for item in items[first : first + _AT_A_TIME]:
                item.sample(now, windows)
            await asyncio.sleep(0)

    def forget_idle(self) -> None:
        """Forget groups without gets, send-backs and dead letters for a day; called every hour."""
        for table, retired in self._of_groups:
            for key, item in list(table.items()):
                if item.is_idle:
                    self._retire_item(item, retired)
                    del table[key]

    def runtime_info(self) -> dict[str, str]:
        """Return the counters in GET_BROKER_RUNTIME_INFO, under RocketMQ's keys."""
        now = self._sum(self._clock.time_ms())
        yesterday, today = self._mornings
        return {
            "putTps": self._tps(now, lambda totals: totals.put),
            "getFoundTps": self._tps(now, lambda totals: totals.get_found),
            "getMissTps": self._tps(now, lambda totals: totals.get_miss),
            "getTotalTps": self._tps(now, lambda totals: totals.get_found + totals.get_miss),
            "getTransferredTps": self._tps(now, lambda totals: totals.got),
            "putMessageTimesTotal": str(now.put),
            "putMessageFailedTimes": str(self._broker_put.misses),
            "putMessageSizeTotal": str(now.put_size),
            "putMessageAverageSize": str(now.put_size / max(now.put, 1)),
            "msgPutTotalYesterdayMorning": str(yesterday.put),
            "msgPutTotalTodayMorning": str(today.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgGetTotalYesterdayMorning": str(yesterday.got),
            "msgGetTotalTodayMorning": str(today.got),
            "msgGetTotalTodayNow": str(now.got),
        }

    @staticmethod
    def _day_of(now_ms: int) -> int:
        return time.localtime(now_ms // 1000).tm_yday

    def _tps(self, now: _Totals, count: Callable[[_Totals], int]) -> str:
        """Return the rates over the last 10, 60 and 600 s, or since the start if that is shorter."""
        rates = []
        for window_s in TPS_WINDOWS_S:
            since = now.time_ms - window_s * 1000
            first = next((totals for totals in reversed(self._totals) if totals.time_ms <= since), self._totals[0])
            elapsed_ms = now.time_ms - first.time_ms
            rates.append((count(now) - count(first)) * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0)
        return " ".join(map(str, rates))

    def _item(self, table: dict[str, StatsItem], key: str) -> StatsItem:
        item = table.get(key)
        if item is None:
            item = table[key] = StatsItem(self._clock.time_ms())
        return item

    def _item_of_group(self, table: dict[str, StatsItem], key: str, others: StatsItem) -> StatsItem:
        if key not in table and len(table) >= MOST_BY_GROUP:
            return others
        return self._item(table, key)

    def _retire(self, topic: str, prefix: str, suffix: str) -> None:
        if topic in self._puts:
            self._retire_item(self._puts[topic], self._retired_put)
        for table, retired in self._of_groups:
            for key, item in table.items():
                if key.startswith(prefix) and key.endswith(suffix):
                    self._retire_item(item, retired)

    def _retire_item(self, item: StatsItem, retired: StatsItem | None) -> None:
        if retired is not None:
            retired.nums += item.nums
            retired.times += item.times
            retired.size += item.size
            retired.misses += item.misses
        item.clear(self._clock.time_ms())

    def _sum(self, now_ms: int) -> _Totals:
        """Add up the items into the two of the broker, and return all totals."""
        for total, items in (
            (self._broker_put, [self._retired_put, *self._puts.values()]),
            (self._broker_get, [self._retired_get, self.passing_gets, *self._gets.values()]),
        ):
            total.nums = sum(item.nums for item in items)
            total.times = sum(item.times for item in items)
            total.size = sum(item.size for item in items)
            total.misses = sum(item.misses for item in items)
        put, get = self._broker_put, self._broker_get
        return _Totals(now_ms, put.nums, put.size, get.times, get.misses, get.nums)
