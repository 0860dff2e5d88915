"""Metrics and health of a name server: what its exporter reads.

Nothing here is imported without an exporter.
"""

from collections.abc import Callable

from rocketbroker.app.metrics_service import MetricsService, Source, exporter_of
from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.common.config.load import NamesrvSettings
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.namesrv_metrics import NamesrvMetrics
from rocketbroker.metrics.remoting_metrics import RemotingMetricsManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.remoting_server import RemotingServer


class NamesrvMetricsPort(MetricsService):
    """The exporter, and what it reads.

    Args:
        settings: all settings.
        routes: what is registered.
        server: the server whose requests are timed.
        mode: protected mode.
        address: returns the address of the name server.
        guard: its access control, if it has one.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: RouteInfoManager,
        server: RemotingServer,
        mode: ProtectedMode,
        address: Callable[[], str],
        guard: RequestGuard | None = None,
    ) -> None:
        loop = LoopWatch()
        metrics = NamesrvMetrics(settings.namesrv, routes, RemotingMetricsManager(server, guard), loop, address)
        source = Source(metrics.report, metrics, mode, settings.transport.bind_address, tls=server.tls)
        super().__init__(exporter_of(settings.namesrv, source), loop)
