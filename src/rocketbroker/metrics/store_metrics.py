"""The store and its timer (org.apache.rocketmq.store.metrics.DefaultStoreMetricsManager)."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.timer.timer_message_store import SNAPSHOT_BOUNDS_S, TimerFigures, TimerMessageStore
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.clock import Clock
from rocketbroker.metrics.family import Family, Samples, Value, counter, gauge, histogram
from rocketbroker.store.clean.disk_watch import MeasureDisk, look_at_disks
from rocketbroker.store.message_store import MessageStore

_PLACE: Final = {"storage_type": "local", "storage_medium": "disk"}


def _one(value: float) -> Samples:
    return [(_PLACE, value)]


class DefaultStoreMetricsManager:
    """Metrics of a store.

    Args:
        store: the store.
        timer: timer messages.
        meters: counts of timer messages.
        measure_disk: measures the disk of a folder (blocks).
    """

    def __init__(
        self,
        store: MessageStore,
        timer: TimerMessageStore,
        meters: MessageMeters,
        clock: Clock,
        measure_disk: MeasureDisk,
    ) -> None:
        self._store = store
        self._timer = timer
        self._meters = meters
        self._clock = clock
        self._measure_disk = measure_disk

    async def families(self) -> list[Family]:
        """Return the metrics; disk and oldest message are read on threads."""
        store = self._store
        root = Path(store.config.store_path_root_dir)
        disk = await asyncio.get_running_loop().run_in_executor(None, self._measure_disk, root)
        end = store.commit_log.max_offset
        found = [
            # RocketMQ's value: that of the whole disk.
            gauge("rocketmq_storage_size_bytes", _one(disk.used)),
            gauge("rocketmq_storage_flush_behind_bytes", _one(max(end - store.flusher.flushed_offset, 0))),
            gauge("rocketmq_storage_dispatch_behind_bytes", _one(max(end - store.appender.dispatched_offset, 0))),
            gauge("rocketmq_storage_message_reserve_time_milliseconds", _one(await self._reserve_time())),
        ]
        if store.config.timer_wheel_enable:
            found += self._timer_families(await self._timer.figures())
        return found

    async def own(self) -> list[Family]:
        """Return metrics that RocketMQ lacks; the disk is measured on a thread."""
        loop, config = asyncio.get_running_loop(), self._store.config
        fullest = await loop.run_in_executor(None, look_at_disks, config, self._measure_disk)
        return [
            counter(
                "rocketbroker_sync_errors_total",
                [({}, self._store.flusher.errors)],
                "Failed syncs of the CommitLog; the broker is read-only after one, until a later one succeeds.",
            ),
            counter(
                "rocketbroker_damaged_messages_total",
                [({}, self._store.damage_log.count)],
                "Messages that were found damaged.",
            ),
            gauge(
                "rocketbroker_store_disk_used_ratio",
                [({}, fullest.use.used / max(fullest.use.capacity, 1))],
                "Used share of the disk of the log or of the queues, whichever is fuller; sends are rejected above "
                "diskSpaceWarningLevelRatio.",
            ),
        ]

    async def _reserve_time(self) -> int:
        log = self._store.commit_log
        if log.max_offset <= log.min_offset:
            return 0
        record = await self._store.queries.read_message(log.min_offset)
        if record is None:
            return 0
        return max(self._clock.time_ms() - decode_record(record, read_body=False).store_timestamp, 0)

    def _timer_families(self, timer: TimerFigures) -> Iterator[Family]:
        meters = self._meters
        yield gauge("rocketmq_timer_enqueue_lag", _one(timer.enqueue_lag))
        yield gauge("rocketmq_timer_enqueue_latency_milliseconds", _one(timer.enqueue_latency_ms))
        yield gauge("rocketmq_timer_dequeue_lag", _one(timer.dequeue_lag))
        yield gauge("rocketmq_timer_dequeue_latency_milliseconds", _one(timer.dequeue_latency_ms))
        bounds = zip(SNAPSHOT_BOUNDS_S, timer.due_within, strict=True)
        snapshot = [({**_PLACE, "timer_bound_s": str(bound)}, number) for bound, number in bounds]
        yield gauge("rocketmq_timer_message_snapshot", snapshot)
        yield counter("rocketmq_timer_enqueue_total", _by_topic(meters.timer_enqueued))
        yield counter("rocketmq_timer_dequeue_total", _by_topic(meters.timer_dequeued))
        yield histogram(
            "rocketmq_delay_message_latency_seconds",
            _by_topic(meters.delay_latency),
            "Timer message set latency distribution",
        )
        yield gauge(
            "rocketbroker_timing_messages",
            [({}, timer.waiting)],
            "Timer messages that wait for their time, of all topics; POP's are not among them.",
        )


def _by_topic(table: Mapping[str, Value]) -> Samples:
    for topic, value in list(table.items()):
        yield {**_PLACE, "topic": topic}, value
