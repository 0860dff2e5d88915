"""Metrics and health of a name server, on an HTTP port in its process.

Nothing here is imported unless metricsExporterType=PROM: it needs the extra ``metrics``.
"""

from collections.abc import Callable

from rocketbroker.common.config.load import NamesrvSettings
from rocketbroker.metrics.http_port import MetricsPort, MetricsService
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.namesrv_metrics import NamesrvMetrics
from rocketbroker.metrics.remoting_metrics import RemotingMetricsManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.remoting_server import RemotingServer


class NamesrvMetricsPort(MetricsService):
    """The port, and what it shows.

    Args:
        settings: all settings.
        routes: what is registered.
        server: the server whose requests are timed.
        mode: protected mode.
        address: returns the address of the name server.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: RouteInfoManager,
        server: RemotingServer,
        mode: ProtectedMode,
        address: Callable[[], str],
    ) -> None:
        self._config = settings.namesrv
        loop = LoopWatch()
        metrics = NamesrvMetrics(self._config, routes, RemotingMetricsManager(server), loop, address)
        port = MetricsPort(
            self._config.metrics_prom_exporter_host or settings.transport.bind_address,
            self._config.metrics_prom_exporter_port,
            metrics.page,
            metrics,
            mode,
            self._white_list,
        )
        super().__init__(port, loop)

    def _white_list(self) -> str:
        return self._config.metrics_white_list
