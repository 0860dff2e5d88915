"""Counts of messages that only metrics ask for (BrokerMetricsManager, PopMetricsManager, DefaultStoreMetricsManager).

Without an exporter there are none, so that nothing is counted. With one, a send adds three numbers.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.common.histogram import Histogram

#: Bounds in bytes, seconds and seconds, as Apache RocketMQ has them.
SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 43_200, 86_400)
DELAY_BOUNDS: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
#: In ms.
SCAN_BOUNDS: Final = (1, 10, 100, 1000, 2000, 3000)

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"
_SMALL: Final = SIZE_BOUNDS[0]
_SHARDING_KEY: Final = b"__SHARDINGKEY\x01"


class Traffic:
    """Messages of one type that were stored in one topic: their number, bytes and sizes, one for each request.

    ``small`` and ``small_size`` are those of requests with one message of the first bucket, which nearly all are: two
    numbers are added for each.
    """

    __slots__ = ("_nums", "_size", "_sizes", "small", "small_size")

    def __init__(self) -> None:
        self.small = self.small_size = 0
        self._nums = self._size = 0
        self._sizes = Histogram(SIZE_BOUNDS)

    def add(self, nums: int, size: int, requests: int = 1) -> None:
        """Count requests with messages of the same size."""
        self._nums += nums
        self._size += size
        self._sizes.add(size / nums, requests)

    @property
    def nums(self) -> int:
        """Number of messages."""
        return self._nums + self.small

    @property
    def size(self) -> int:
        """Number of their bytes."""
        return self._size + self.small_size

    @property
    def sizes(self) -> Histogram:
        """Mean size of the messages of each request."""
        found = Histogram(SIZE_BOUNDS)
        found.take(self._sizes)
        found.buckets[0] += self.small
        found.count += self.small
        found.sum += self.small_size
        return found


class SendMeter:
    """Counts the sends to one topic by the type of their messages."""

    __slots__ = ("_meters", "_normal", "_topic")

    def __init__(self, meters: "MessageMeters", topic: str) -> None:
        self._meters = meters
        self._topic = topic
        self._normal = meters.traffic(topic, NORMAL)

    def sent(self, topic: str, properties: bytes, size: int, nums: int = 1) -> None:
        """Count one request; ``topic`` is where its messages are stored."""
        if topic != self._topic or _SHARDING_KEY in properties:
            self._sent_otherwise(topic, properties, size, nums)
        elif nums == 1 and size <= _SMALL:
            normal = self._normal
            normal.small += 1
            normal.small_size += size
        else:
            self._normal.add(nums, size)

    def _sent_otherwise(self, topic: str, properties: bytes, size: int, nums: int) -> None:
        if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            return
        if topic == RMQ_SYS_TRANS_HALF_TOPIC:
            kind = TRANSACTION
            self._meters.half_messages[self._topic] += 1
        else:
            kind = FIFO if _SHARDING_KEY in properties else DELAY
        self._meters.traffic(topic, kind).add(nums, size)

    def sent_together(
        self, properties: Sequence[bytes], bodies: Sequence[ReadableBuffer], size: int, nums: int
    ) -> None:
        """Count requests that came together, with their properties and bodies, and all their messages."""
        requests, total = len(bodies), sum(map(len, bodies))
        # The headers of the requests are alike, and so is what a record has beside its body.
        overhead = (size - total) // requests
        # Messages of batches that came together have one size.
        longest = max(map(len, bodies)) + overhead
        is_even = nums != requests or longest <= _SMALL or _bucket(min(map(len, bodies)) + overhead) == _bucket(longest)
        # A key that is in none is not in all of them together: one search instead of many.
        if is_even and _SHARDING_KEY not in b"".join(properties):
            if nums == requests and longest <= _SMALL:
                self._normal.small += nums
                self._normal.small_size += size
            else:
                self._normal.add(nums, size, requests)
            return
        for each, body in zip(properties, bodies, strict=True):
            its_size = len(body) + overhead if nums == requests else size // requests
            self.sent(self._topic, each, its_size, nums // requests)


class OwnReads:
    """Messages, and their bytes, that a service of the broker read from a system topic."""

    __slots__ = ("nums", "size")

    def __init__(self) -> None:
        self.nums = self.size = 0


class MessageMeters:
    """All such counts, by topic.

    Attributes:
        sends: messages of sends, by topic and type.
        half_messages: open transactions by the topic that they are for.
        committed: committed transactions by topic.
        rolled_back: those rolled back.
        finish_latency: age of transactions when they ended, in seconds, by topic.
        timer_enqueued: messages that the timer took in, by topic.
        timer_dequeued: messages that it delivered.
        delay_latency: age of timer messages when they were delivered, in seconds, by topic.
        revived: messages that returned to a retry topic of POP, by group, topic and result of the put.
        revive_out: check points of POP whose messages were due, by group, topic and queue of the revive topic.
        scans: times of looks at the check points that are due, in ms.
        own_reads: messages and bytes that services of the broker read from system topics, by topic and group.
    """

    def __init__(self) -> None:
        self.sends: dict[tuple[str, str], Traffic] = {}
        self.half_messages: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.finish_latency: dict[str, Histogram] = {}
        self.timer_enqueued: Counter[str] = Counter()
        self.timer_dequeued: Counter[str] = Counter()
        self.delay_latency: dict[str, Histogram] = {}
        self.revived: Counter[tuple[str, str, str]] = Counter()
        self.revive_out: Counter[tuple[str, str, int]] = Counter()
        self.scans = Histogram(SCAN_BOUNDS)
        self.own_reads: dict[tuple[str, str], OwnReads] = {}

    def traffic(self, topic: str, kind: str) -> Traffic:
        """Return the counts of a topic's messages of one type, to keep and to add to."""
        found = self.sends.get((topic, kind))
        if found is None:
            found = self.sends[topic, kind] = Traffic()
        return found

    def read(self, topic: str, group: str, size: int) -> None:
        """Count a message that a service of the broker read from a system topic."""
        found = self.own_reads.get((topic, group))
        if found is None:
            found = self.own_reads[topic, group] = OwnReads()
        found.nums += 1
        found.size += size

    def ended(self, topic: str, age_s: float, *, committed: bool) -> None:
        """Count the end of a transaction that a producer ended."""
        (self.committed if committed else self.rolled_back)[topic] += 1
        _histogram(self.finish_latency, topic, FINISH_BOUNDS).add(age_s)
        self.closed(topic)

    def closed(self, topic: str) -> None:
        """Count a half message that is open no more."""
        if self.half_messages[topic] > 0:
            self.half_messages[topic] -= 1

    def timer_delivered(self, topic: str, age_s: float) -> None:
        """Count a timer message that is delivered."""
        self.timer_dequeued[topic] += 1
        _histogram(self.delay_latency, topic, DELAY_BOUNDS).add(age_s)

    def forget(self, topic: str) -> None:
        """Forget the counts of a deleted topic."""
        for kind in (NORMAL, FIFO, DELAY, TRANSACTION):
            self.sends.pop((topic, kind), None)
        for revived in [key for key in self.revived if key[1] == topic]:
            del self.revived[revived]
        for out in [key for key in self.revive_out if key[1] == topic]:
            del self.revive_out[out]
        for table in (
            self.half_messages,
            self.committed,
            self.rolled_back,
            self.finish_latency,
            self.timer_enqueued,
            self.timer_dequeued,
            self.delay_latency,
        ):
            table.pop(topic, None)


def _bucket(size: int) -> int:
    return bisect_left(SIZE_BOUNDS, size)


def _histogram(table: dict[str, Histogram], topic: str, bounds: Sequence[float]) -> Histogram:
    found = table.get(topic)
    if found is None:
        found = table[topic] = Histogram(bounds)
    return found
