"""Metrics in a log file (metricsExporterType=LOG), as lines of OTLP's JSON like those of OtlpJsonLoggingMetricExporter.

A line is a ResourceMetrics and nothing else, so that a collector reads it from the file. The log of a server writes the
lines of this module's logger to a file of their own, without time or level.
"""

import asyncio
import logging
from typing import Any, Final

import msgspec

from rocketbroker.metrics.data_points import Batch, Buckets, Point, Points
from rocketbroker.metrics.family import Labels
from rocketbroker.metrics.push_exporter import Outcome

log = logging.getLogger(__name__)

_DELTA: Final = 1
_CUMULATIVE: Final = 2
#: Data points of a line, so that none is longer than a megabyte.
LINE_POINTS: Final = 1000
# A point of a distribution takes up to 80 µs to encode.
_AT_A_TIME: Final = 100


class LogExporter:
    """Writes a batch as one line at level INFO."""

    async def export(self, batch: Batch, *, in_delta: bool) -> Outcome:
        """Write the line."""
        log.info("%s", await json_line(batch, in_delta=in_delta))
        return Outcome.TAKEN

    async def stop(self) -> None:
        """Do nothing."""


async def json_line(batch: Batch, *, in_delta: bool) -> str:
    """Return a batch as a ResourceMetrics of OTLP's JSON, whose 64-bit integers are text; others run in between."""
    common = _attributes(batch.labels)
    time = str(batch.time_ns)
    scopes: dict[str, list[dict[str, Any]]] = {}
    steps = 0
    for metric in batch.metrics:
        found: dict[str, Any] = {"name": metric.otel.name, "description": metric.help, "unit": metric.otel.unit}
        points = []
        for point in metric.points:
            # Encoded at once: encoding all of a line in one go would hold the event loop as well.
            points.append(msgspec.Raw(msgspec.json.encode(_point(point, common, batch.labels, time))))
            steps += 1
            if steps % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        found |= _data(metric, points, _DELTA if in_delta else _CUMULATIVE)
        scopes.setdefault(metric.scope, []).append(found)
    whole = {
        "resource": {"attributes": _attributes(batch.resource)} if batch.instance else {},
        "scopeMetrics": [{"scope": {"name": name}, "metrics": metrics} for name, metrics in scopes.items()],
    }
    return msgspec.json.encode(whole).decode()


def _data(metric: Points, points: list[msgspec.Raw], temporality: int) -> dict[str, Any]:
    if metric.kind == "gauge":
        return {"gauge": {"dataPoints": points}}
    data: dict[str, Any] = {"dataPoints": points, "aggregationTemporality": temporality}
    return {"histogram": data} if metric.kind == "histogram" else {"sum": {**data, "isMonotonic": True}}


def _point(point: Point, common: list[dict[str, Any]], given: Labels, time: str) -> dict[str, Any]:
    if not point.labels.keys().isdisjoint(given):
        common = _attributes({name: value for name, value in given.items() if name not in point.labels})
    value = point.value
    found: dict[str, Any] = {
        "startTimeUnixNano": str(point.start_ns),
        "timeUnixNano": time,
        "attributes": [*common, *_attributes(point.labels)],
    }
    if isinstance(value, Buckets):
        return {
            **found,
            "count": str(value.number),
            "sum": float(value.sum),
            "bucketCounts": [str(each) for each in value.counts],
            "explicitBounds": [float(each) for each in value.bounds],
        }
    return {**found, "asInt": str(value)} if isinstance(value, int) else {**found, "asDouble": value}


def _attributes(labels: Labels) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
