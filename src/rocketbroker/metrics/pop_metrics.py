"""POP (org.apache.rocketmq.broker.metrics.PopMetricsManager).

All open check points are in memory here, and nothing is read from the revive topic: a check point comes out of it when
its messages are due, and acknowledgements never do. A scan of the buffer is a look at what is due.
"""

from collections import Counter
from collections.abc import Iterator

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.common.clock import Clock
from rocketbroker.metrics.family import Family, Samples, counter, gauge, histogram


class PopMetricsManager:
    """Metrics of POP."""

    def __init__(self, check_points: PopCheckPoints, meters: MessageMeters, clock: Clock) -> None:
        self._check_points = check_points
        self._meters = meters
        self._clock = clock

    def families(self) -> Iterator[Family]:
        """Yield the metrics."""
        check_points, now = self._check_points, self._clock.time_ms()
        yield gauge("rocketmq_pop_offset_buffer_size", [({}, check_points.queues.uncommitted)])
        yield gauge("rocketmq_pop_checkpoint_buffer_size", [({}, check_points.count)])
        due, first_ms = check_points.due_by_revive_queue(now), check_points.next_due_ms
        late_ms = max(now - first_ms, 0) if first_ms is not None else 0
        # The first two are RocketMQ's units: a number of messages under the name of a time.
        yield gauge(
            "rocketmq_pop_revive_lag_milliseconds", [({"queue_id": str(each)}, number) for each, number in due.items()]
        )
        yield gauge(
            "rocketmq_pop_revive_latency_milliseconds",
            [({"queue_id": str(each)}, late_ms if number else 0) for each, number in due.items()],
        )
        scans = self._meters.scans
        yield histogram(
            "rocketmq_pop_buffer_scan_time_consume_milliseconds",
            [({}, scans)] if scans.count else (),
            "Time consuming of pop buffer scan",
        )
        yield counter("rocketmq_pop_revive_in_message_total", self._stored())
        yield counter("rocketmq_pop_revive_out_message_total", self._out())
        yield counter("rocketmq_pop_revive_retry_messages_total", self._revived())

    def _stored(self) -> Samples:
        stored: Counter[tuple[str, str, str]] = Counter()
        for queue in list(self._check_points.queues):
            stored[queue.group, queue.topic, "CK"] += queue.check_points_stored
            stored[queue.group, queue.topic, "ACK"] += queue.acks_stored
            yield None
        for (group, topic, kind), number in stored.items():
            if number:
                yield (
                    {
                        "consumer_group": group,
                        "topic": topic,
                        "revive_message_type": kind,
                        "put_status": "PUT_OK",
                    },
                    number,
                )

    def _out(self) -> Samples:
        for (group, topic, queue_id), number in list(self._meters.revive_out.items()):
            yield (
                {
                    "consumer_group": group,
                    "topic": topic,
                    "queue_id": str(queue_id),
                    "revive_message_type": "CK",
                },
                number,
            )

    def _revived(self) -> Samples:
        for (group, topic, status), number in list(self._meters.revived.items()):
            yield {"consumer_group": group, "topic": topic, "put_status": status}, number
