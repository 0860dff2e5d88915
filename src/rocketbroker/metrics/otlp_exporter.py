"""Metrics for a collector of OpenTelemetry, by OTLP over gRPC (metricsExporterType=OTLP_GRPC).

It needs the extra ``otlp`` and is imported for this exporter alone.
"""

import asyncio
import logging
from typing import Final

import grpc
from grpc import aio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from rocketbroker.common.config.metrics_settings import OtlpTarget
from rocketbroker.common.errors import shown
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.metrics.data_points import Batch, Buckets, Point, Points
from rocketbroker.metrics.family import Labels
from rocketbroker.metrics.push_exporter import Outcome

log = logging.getLogger(__name__)

_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
# Failures of the collector or of the settings, not of a batch.
_OF_ALL: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# A point takes up to 30 µs to encode.
_AT_A_TIME: Final = 200


class OtlpExporter:
    """Sends batches to a collector, compressed by gzip as Apache's exporter does.

    Args:
        target: the collector.
        headers: metadata of each call.
        timeout_s: longest time of a call.
    """

    def __init__(self, target: OtlpTarget, headers: dict[str, str], timeout_s: float) -> None:
        self._target = target
        self._headers = tuple(headers.items())
        self._timeout_s = timeout_s
        self._channel: aio.Channel | None = None
        self._is_failing = False
        self._rejections = RefusalLog(log, "refused batches")

    async def export(self, batch: Batch, *, in_delta: bool) -> Outcome:
        """Send a batch. A collector that takes none is logged once, and so is the next success."""
        request = ExportMetricsServiceRequest(resource_metrics=[await resource_metrics(batch, in_delta=in_delta)])
        try:
            reply = await self._call(request)
        except aio.AioRpcError as error:
            details = shown(error.details() or "")
            if error.code() not in _OF_ALL:
                where = self._target.address
                self._rejections.add(
                    f"metrics: the collector at {where} refused a batch: {error.code().name}: {details}"
                )
                return Outcome.REFUSED
            if not self._is_failing:
                self._is_failing = True
                log.warning(
                    "metrics: the collector at %s does not take them: %s: %s; it is tried again at each interval",
                    self._target.address, error.code().name, details,
                )  # fmt: skip
            return Outcome.UNREACHABLE
        if self._is_failing:
            self._is_failing = False
            log.info("metrics: the collector at %s takes them again", self._target.address)
        if reply.partial_success.rejected_data_points:
            count, text = reply.partial_success.rejected_data_points, shown(reply.partial_success.error_message)
            self._rejections.add(f"metrics: the collector rejected {count} data points: {text}")
        return Outcome.TAKEN

    async def _call(self, request: ExportMetricsServiceRequest) -> ExportMetricsServiceResponse:
        if self._channel is None:
            # Here, since it belongs to the event loop.
            self._channel = self._open()
        call = self._channel.unary_unary(
            _METHOD,
            request_serializer=ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=ExportMetricsServiceResponse.FromString,
        )
        reply: ExportMetricsServiceResponse = await call(request, timeout=self._timeout_s, metadata=self._headers)
        return reply

    def _open(self) -> aio.Channel:
        address, compression = self._target.address, grpc.Compression.Gzip
        if self._target.is_tls:
            return aio.secure_channel(address, grpc.ssl_channel_credentials(), compression=compression)
        return aio.insecure_channel(address, compression=compression)

    async def stop(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


async def resource_metrics(batch: Batch, *, in_delta: bool) -> ResourceMetrics:
    """Return a batch as a ResourceMetrics; others run in between."""
    temporality = (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        if in_delta
        else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    common = _attributes(batch.labels)
    found = ResourceMetrics()
    found.resource.SetInParent()
    found.resource.attributes.extend(_attributes(batch.resource))
    scopes: dict[str, ScopeMetrics] = {}
    steps = 0
    for metric in batch.metrics:
        if metric.scope not in scopes:
            scopes[metric.scope] = found.scope_metrics.add()
            scopes[metric.scope].scope.name = metric.scope
        its = scopes[metric.scope].metrics.add(name=metric.otel.name, description=metric.help, unit=metric.otel.unit)
        for point in metric.points:
            _add(its, metric, point, common, batch)
            steps += 1
            if steps % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        if metric.kind == "histogram":
            its.histogram.aggregation_temporality = temporality
        elif metric.kind == "counter":
            its.sum.aggregation_temporality = temporality
            its.sum.is_monotonic = True
    return found


def _add(its: Metric, metric: Points, point: Point, common: list[KeyValue], batch: Batch) -> None:
    value = point.value
    added: HistogramDataPoint | NumberDataPoint
    if isinstance(value, Buckets):
        added = its.histogram.data_points.add(
            count=value.number, sum=value.sum, bucket_counts=value.counts, explicit_bounds=value.bounds
        )
    else:
        added = (its.gauge if metric.kind == "gauge" else its.sum).data_points.add()
        if isinstance(value, int):
            added.as_int = value
        else:
            added.as_double = value
    added.start_time_unix_nano, added.time_unix_nano = point.start_ns, batch.time_ns
    if not point.labels.keys().isdisjoint(batch.labels):
        common = _attributes({name: each for name, each in batch.labels.items() if name not in point.labels})
    added.attributes.extend(common)
    added.attributes.extend(_attributes(point.labels))


def _attributes(labels: Labels) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in labels.items()]
