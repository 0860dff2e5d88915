"""The store and its timer (org.apache.rocketmq.store.metrics.DefaultStoreMetricsManager)."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.timer.timer_message_store import SNAPSHOT_BOUNDS_S, TimerFigures, TimerMessageStore
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.metrics.family import Family, Samples, Value, counter, gauge, histogram
from rocketbroker.store.clean.disk_watch import MeasureDisk, look_at_disks
from rocketbroker.store.message_store import MessageStore

log = logging.getLogger(__name__)

_PLACE: Final = {"storage_type": "local", "storage_medium": "disk"}


# Longest time of a measurement in seconds, beyond which its metric is left out: the page has others.
_MEASURE_S: Final = 5.0

R = TypeVar("R")


def _one(value: float) -> Samples:
    return [(_PLACE, value)]


class _Measurement(Generic[R]):
    """A measurement of a disk, one at a time: a disk that hangs must not take a thread for each page.

    Args:
        measure: measures (blocks).
        errors: log of failures.
    """

    def __init__(self, measure: Callable[[], R], errors: RefusalLog) -> None:
        self._measure = measure
        self._errors = errors
        self._running: asyncio.Future[R] | None = None

    async def value(self) -> R | None:
        """Return what was measured, ``None`` if the disk fails or takes too long."""
        if self._running is None:
            self._running = asyncio.get_running_loop().run_in_executor(None, self._measure)
        done, _ = await asyncio.wait([self._running], timeout=_MEASURE_S)
        if not done:
            self._errors.add(f"metrics: the disk of the store did not answer within {_MEASURE_S:g} s")
            return None
        measured, self._running = self._running, None
        try:
            return measured.result()
        except OSError as error:
            self._errors.add(f"metrics: the disk of the store cannot be measured: {error}")
            return None


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
        root, errors = Path(store.config.store_path_root_dir), RefusalLog(log, "failures")
        self._used = _Measurement(lambda: measure_disk(root), errors)
        self._fullest = _Measurement(lambda: look_at_disks(store.config, measure_disk), errors)
        self._errors = errors

    async def families(self) -> list[Family]:
        """Return the metrics; disk and oldest message are read on threads, and left out if they cannot be."""
        store = self._store
        disk, reserve_time = await self._used.value(), await self._reserve_time()
        end = store.commit_log.max_offset
        found = [
            # RocketMQ's value: that of the whole disk.
            gauge("rocketmq_storage_size_bytes", _one(disk.used) if disk is not None else ()),
            gauge("rocketmq_storage_flush_behind_bytes", _one(max(end - store.flusher.flushed_offset, 0))),
            gauge("rocketmq_storage_dispatch_behind_bytes", _one(max(end - store.appender.dispatched_offset, 0))),
            gauge(
                "rocketmq_storage_message_reserve_time_milliseconds",
                _one(reserve_time) if reserve_time is not None else (),
            ),
        ]
        if store.config.timer_wheel_enable:
            found += self._timer_families(await self._timer.figures())
        return found

    async def own(self) -> list[Family]:
        """Return metrics that RocketMQ lacks; the disk is measured on a thread."""
        fullest = await self._fullest.value()
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
                [({}, fullest.use.used / max(fullest.use.capacity, 1))] if fullest is not None else (),
                "Used share of the disk of the log or of the queues, whichever is fuller; sends are rejected above "
                "diskSpaceWarningLevelRatio.",
            ),
        ]

    async def _reserve_time(self) -> int | None:
        """Return the age of the oldest message in ms, 0 without one, ``None`` if it cannot be read."""
        commit_log = self._store.commit_log
        if commit_log.max_offset <= commit_log.min_offset:
            return 0
        try:
            async with asyncio.timeout(_MEASURE_S):
                record = await self._store.queries.read_message(commit_log.min_offset)
            if record is None:
                return 0
            return max(self._clock.time_ms() - decode_record(record, read_body=False).store_timestamp, 0)
        except (OSError, RocketBrokerError) as error:  # TimeoutError is an OSError
            self._errors.add(f"metrics: the oldest message cannot be read: {str(error) or 'it takes too long'}")
            return None

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
        waiting = self._timer.metrics()
        if waiting is not None:
            counts = {topic: each.count for topic, each in waiting.timing_count.items()}
            # A topic of which all are delivered stays, with 0.
            yield gauge("rocketmq_timing_messages", _by_topic(dict.fromkeys(meters.timer_enqueued, 0) | counts))
        yield gauge(
            "rocketbroker_timing_messages",
            [({}, timer.waiting)],
            "Timer messages that wait for their time, of all topics; POP's are not among them.",
        )


def _by_topic(table: Mapping[str, Value]) -> Samples:
    for topic, value in list(table.items()):
        yield {**_PLACE, "topic": topic}, value
