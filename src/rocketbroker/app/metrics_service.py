"""The exporter of a server's metrics that metricsExporterType names.

An exporter's module is imported if it is chosen: PROM needs the extra ``metrics`` and OTLP_GRPC the extra ``otlp``.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.metrics_settings import MetricsPortSettings, parse_headers, parse_target
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import Part, PartList
from rocketbroker.metrics.family import Report
from rocketbroker.metrics.health import Health
from rocketbroker.metrics.push_exporter import PushExporter
from rocketbroker.transport.access import Admit
from rocketbroker.transport.tls_transport import ServerTls

log = logging.getLogger(__name__)

_REMEDIES: Final = {
    "PROM": "pip install 'rocketbroker[metrics]'",
    "OTLP_GRPC": "pip install 'rocketbroker[otlp]'",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Metrics and health of a server, and who may read them.

    Attributes:
        report: returns the metrics; ``None`` while there are none.
        health: the conditions of /healthz and /readyz.
        admit: returns the audience of a peer of the HTTP port.
        bind_address: where that port listens without metricsPromExporterHost.
        remedy: what admits a peer that is rejected, beside metricsWhiteList.
        tls: TLS of that port, ``None`` for plain text alone.
    """

    report: Callable[[], Awaitable[Report] | None]
    health: Health
    admit: Admit
    bind_address: str
    clock: Clock = field(default_factory=SystemClock)
    remedy: str = ", or set protectedMode=false"
    tls: ServerTls | None = None


def exporter_of(config: MetricsPortSettings, source: Source) -> Part:
    """Return the exporter of metricsExporterType, which is not DISABLE.

    Raises:
        ConfigError: A package is missing, or a setting.
    """
    kind = config.metrics_exporter_type
    try:
        return _exporter(kind, config, source)
    except ModuleNotFoundError as error:
        text = f"metricsExporterType={kind} needs the package {error.name!r}: {_REMEDIES[kind]}"
        raise ConfigError(text) from error


def _exporter(kind: str, config: MetricsPortSettings, source: Source) -> Part:
    if kind == "PROM":
        from rocketbroker.metrics.metrics_port import MetricsPort

        return MetricsPort(
            config, source.bind_address, source.report, source.health, source.admit, source.remedy, source.tls
        )
    if kind == "LOG":
        from rocketbroker.metrics.log_exporter import LINE_POINTS, LogExporter

        if not logging.getLogger(LogExporter.__module__).isEnabledFor(logging.INFO):
            log.warning("metricsExporterType=LOG: there are no log files to write metrics to; set logDir")
        period_s = config.metric_logging_exporter_interval_in_mills / 1000
        return PushExporter(
            LogExporter(), period_s, lambda: LINE_POINTS, source.report, source.clock, in_delta=config.metrics_in_delta
        )
    if not config.metrics_grpc_exporter_target:
        text = "metricsExporterType=OTLP_GRPC: there is no collector; set metricsGrpcExporterTarget=http://HOST:4317"
        raise ConfigError(text)
    from rocketbroker.metrics.otlp_exporter import OtlpExporter

    return PushExporter(
        OtlpExporter(
            parse_target(config.metrics_grpc_exporter_target),
            parse_headers(config.metrics_grpc_exporter_header),
            config.metric_grpc_exporter_time_out_in_mills / 1000,
        ),
        config.metric_grpc_exporter_interval_in_mills / 1000,
        lambda: config.metrics_export_batch_max_data_points,
        source.report,
        source.clock,
        in_delta=config.metrics_in_delta,
    )


class MetricsService:
    """An exporter, and the watches whose figures it exports."""

    def __init__(self, exporter: Part, *watches: Part) -> None:
        self._exporter = exporter
        self._parts = PartList(*watches, exporter)

    @property
    def port(self) -> int:
        """Port of metrics and health, 0 for an exporter without one."""
        port: int = getattr(self._exporter, "port", 0)
        return port

    async def start(self) -> None:
        """Start to export.

        Raises:
            ConfigError: The port is in use.
        """
        await self._parts.start()

    async def finish(self) -> None:
        """Export a last time, if the exporter does so by itself: the parts that it reads are about to stop."""
        if isinstance(self._exporter, PushExporter):
            await self._exporter.finish()

    async def stop(self) -> None:
        """End the export."""
        await self._parts.stop()
