"""Metrics as data points of OpenTelemetry: its names and units, batches, and the counts since the last export.

For the exporters that send them (OTLP_GRPC) and that log them (LOG); both write the same model in two encodings.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from operator import le
from typing import Final, NamedTuple

from rocketbroker.common.clock import Clock
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.family import Family, Kind, Labels, Report, Value, label_key, samples_of

#: Scope of metrics that RocketMQ lacks.
OWN_SCOPE: Final = "rocketbroker"
_NS: Final = 1_000_000
# Steps between which others run. A distribution takes some 20 µs to copy and to compare.
_AT_A_TIME: Final = 200
# Endings that Prometheus's exporter makes of a unit. RocketMQ has the words as units.
_UNITS: Final = {"_milliseconds": "milliseconds", "_seconds": "seconds", "_bytes": "bytes"}
# RocketMQ's names that end in their unit in OpenTelemetry as well.
_WITH_UNIT: Final = frozenset({"rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes"})
_FINISH: Final = "rocketmq_finish_message_latency_milliseconds"


class OtelName(NamedTuple):
    """Name and unit of a metric in OpenTelemetry."""

    name: str
    unit: str


def otel_name(name: str) -> OtelName:
    """Return OpenTelemetry's name of a metric of Prometheus: RocketMQ's, without the unit that the exporter appends."""
    ending = next(filter(name.endswith, _UNITS), "")
    unit = "ms" if name == _FINISH else _UNITS.get(ending, "")
    return OtelName(name if name in _WITH_UNIT else name.removesuffix(ending), unit)


class Buckets(NamedTuple):
    """Distribution of a data point; ``counts`` has one more than ``bounds``."""

    number: int
    sum: float
    counts: tuple[int, ...]
    bounds: tuple[float, ...]


class Point(NamedTuple):
    """Value of one label set since ``start_ns``, in ns since 1970."""

    labels: Labels
    value: float | Buckets
    start_ns: int


class Points(NamedTuple):
    """Data points of one metric in a batch."""

    scope: str
    otel: OtelName
    help: str
    kind: Kind
    points: list[Point]


class Batch(NamedTuple):
    """Data points that are exported together.

    Attributes:
        labels: labels of every point; those of a point win.
        time_ns: their time, in ns since 1970.
        metrics: the points.
        totals: what the points leave to count from, once they are exported.
        instance: name of the process, empty for none.
    """

    labels: Labels
    time_ns: int
    metrics: list[Points]
    totals: "dict[_Key, _Total]"
    instance: str = ""

    @property
    def resource(self) -> Labels:
        """Attributes of the process that exports."""
        return {"service.instance.id": self.instance} if self.instance else {}


_Key = tuple[str, tuple[tuple[str, str], ...]]


class _Total(NamedTuple):
    value: float | Buckets
    time_ns: int


class DataPoints:
    """Batches of the metrics of one report after the other.

    Args:
        clock: the time of points.
        in_delta: counters and distributions have what was added since their last export (metricsInDelta). What could
            not be exported is in the next one, since ``exported`` was not called for it.
    """

    def __init__(self, clock: Clock, *, in_delta: bool) -> None:
        self.in_delta = in_delta
        self._clock = clock
        self._start_ns = clock.time_ms() * _NS
        self._totals: dict[_Key, _Total] = {}
        # The last report of each series. To compare sets of all series would hold the loop for long: Python hashes and
        # compares the labels of each again.
        self._seen: dict[_Key, int] = {}
        self._reports = 0

    async def batches(self, report: Report, most: int) -> AsyncGenerator[Batch, None]:
        """Yield all points, at most ``most`` in a batch; others run in between."""
        time_ns = self._clock.time_ms() * _NS
        self._reports += 1
        batch, count, steps = Batch(report.labels, time_ns, [], {}, report.instance), 0, 0
        for block in report.blocks:
            for family in block.families:
                points: list[Point] = []
                for point in self._points(family, report, batch):
                    steps += 1
                    if point is not None:
                        if not points:
                            metric = Points(
                                block.scope or OWN_SCOPE, otel_name(family.name), family.help, family.kind, points
                            )
                            batch.metrics.append(metric)
                        points.append(point)
                        count += 1
                    if count == most:
                        yield batch
                        batch.metrics.clear()
                        batch.totals.clear()
                        points, count = [], 0
                    if steps % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
        if count:
            yield batch
        await self._forget_deleted()

    async def _forget_deleted(self) -> None:
        """Forget series that the report lacks: topics and groups were deleted."""
        for step, (key, number) in enumerate(list(self._seen.items()), 1):
            if number != self._reports:
                del self._seen[key]
                self._totals.pop(key, None)
            if step % _AT_A_TIME == 0:
                await asyncio.sleep(0)

    def exported(self, batch: Batch) -> None:
        """Count from the points of a batch on."""
        self._totals.update(batch.totals)

    def _points(self, family: Family, report: Report, batch: Batch) -> Iterator[Point | None]:
        counts = self.in_delta and family.kind != "gauge"
        for step in samples_of(family, report):
            if step is None:
                yield None
                continue
            labels, value = step[0], _copy(step[1])
            if not counts:
                yield Point(labels, value, self._start_ns)
                continue
            key = family.name, label_key(labels)
            self._seen[key] = self._reports
            before = self._totals.get(key)
            added = _difference(value, before.value if before else None)
            if added is None:
                yield None
                continue
            batch.totals[key] = _Total(value, batch.time_ns)
            yield Point(labels, added, before.time_ns if before else self._start_ns)


def _copy(value: Value) -> float | Buckets:
    if isinstance(value, Histogram):
        return Buckets(value.count, value.sum, tuple(value.buckets), tuple(value.bounds))
    return value


def _difference(value: float | Buckets, before: float | Buckets | None) -> float | Buckets | None:
    """Return what was added, all if the count began again, ``None`` if nothing was.

    A distribution that began again may have more values than before, but fewer in a bucket.
    """
    if isinstance(value, Buckets):
        if isinstance(before, Buckets) and all(map(le, before.counts, value.counts)):
            counts = tuple(now - then for now, then in zip(value.counts, before.counts, strict=True))
            value = Buckets(value.number - before.number, value.sum - before.sum, counts, value.bounds)
        return value if value.number else None
    if before is not None and not isinstance(before, Buckets) and before <= value:
        value -= before
    return value or None
