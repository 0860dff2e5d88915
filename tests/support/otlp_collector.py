"""A collector of OpenTelemetry: the service of opentelemetry-proto on a free port, which keeps what it gets."""

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import grpc
from grpc import aio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class OtlpCollector(MetricsServiceServicer):
    """The service; ``async with`` serves it.

    Attributes:
        requests: what it got.
        headers: metadata of the last call.
        status: what calls fail with, if it is not OK.
        rejected: number of data points that it says it rejected.
    """

    def __init__(self, port: int = 0) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: dict[str, Any] = {}
        self.status = grpc.StatusCode.OK
        self.rejected = 0
        self.port = port
        self._server: aio.Server | None = None
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> "OtlpCollector":
        self._server = aio.server(options=[("grpc.so_reuseport", 0)])
        add_MetricsServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        await self._server.stop(None)

    async def Export(  # noqa: N802 - the name of the service
        self, request: ExportMetricsServiceRequest, context: "aio.ServicerContext[Any, Any]"
    ) -> ExportMetricsServiceResponse:
        self.headers = dict(context.invocation_metadata() or ())
        if self.status is not grpc.StatusCode.OK:
            await context.abort(self.status, "the collector is full")
        self.requests.append(request)
        self._arrived.set()
        rejection = ExportMetricsPartialSuccess(rejected_data_points=self.rejected, error_message="too old")
        return ExportMetricsServiceResponse(partial_success=rejection if self.rejected else None)

    async def arrival(self) -> None:
        """Wait for a request."""
        await asyncio.wait_for(self._arrived.wait(), 60)
        self._arrived.clear()

    def metrics(self) -> Iterator[tuple[str, Metric]]:
        """Yield scope and metric of all requests."""
        for request in self.requests:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        yield scope.scope.name, metric
