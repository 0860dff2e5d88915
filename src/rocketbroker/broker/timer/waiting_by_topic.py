"""Waiting messages of the timer by topic, for GET_TIMER_METRICS (org.apache.rocketmq.store.timer.TimerMetrics)."""

from collections.abc import Iterable, Mapping

from rocketbroker.codec.remoting.bodies.offset import TimerMetric, TimerMetricsSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion

# A slot has no topic, so that a start cannot count what waits in the slot files: ``config/timerProgress.json`` has the
# counts. It has them together with the queue offset up to which messages were counted, because it is written more often
# than the slot files, and a start reads the messages behind those files again.
#
# After a kill the counts may be too low: the file has the counts of now, but only deliveries whose copies are on disk,
# and a message that is delivered once more is subtracted once more. No count goes below zero, and all end when nothing
# waits. RocketMQ counts as well as this, and subtracts a cancelled message when the cancel comes; here it counts until
# its time.


class WaitingByTopic:
    """Counts of undelivered messages by real topic.

    Attributes:
        counted_to: queue offset before which all messages were counted.
    """

    def __init__(self) -> None:
        self.counted_to = 0
        self._topics: dict[str, TimerMetric] = {}
        self._version = DataVersion()

    @property
    def counts(self) -> dict[str, int]:
        """Number of messages by topic, without zeros."""
        return {topic: each.count for topic, each in self._topics.items()}

    def restore(self, counts: Mapping[str, int], counted_to: int) -> None:
        """Continue from the counts of a file."""
        self._topics = {topic: TimerMetric(count) for topic, count in counts.items() if count > 0}
        self.counted_to = counted_to

    def begin(self, now_ms: int) -> None:
        """Begin a new version: slaves ignore an empty table of the first one, which a broker without messages has."""
        self._version.next_version(now_ms)

    def add(self, topic: str, queue_offset: int, now_ms: int) -> None:
        """Count a message that was read from the queue, unless an earlier process has."""
        if queue_offset < self.counted_to:
            return
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TimerMetric()
        found.count += 1
        found.time_stamp = now_ms
        self._version.next_version(now_ms)

    def added_to(self, queue_offset: int) -> None:
        """Note that all messages before a queue offset were read."""
        self.counted_to = max(self.counted_to, queue_offset)

    def remove(self, topics: Iterable[str], now_ms: int) -> None:
        """Subtract a message of each topic: it was delivered, cancelled or stored again."""
        for topic in topics:
            found = self._topics.get(topic)
            if found is None:
                continue
            found.count -= 1
            found.time_stamp = now_ms
            self._version.next_version(now_ms)
            if not found.count:
                del self._topics[topic]

    def clear(self) -> None:
        """Forget the counts, as nothing waits."""
        self._topics.clear()

    def metrics(self) -> TimerMetricsSerializeWrapper:
        """Return the answer to GET_TIMER_METRICS; topics without a waiting message are left out."""
        return TimerMetricsSerializeWrapper(dict(sorted(self._topics.items())), self._version)
