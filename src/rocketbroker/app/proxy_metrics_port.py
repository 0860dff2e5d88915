"""Metrics and health of mqproxy in cluster mode: what its exporter reads.

Nothing here is imported without an exporter.
"""

from rocketbroker.app.grpc_port import GrpcPort
from rocketbroker.app.metrics_service import MetricsService, Source, exporter_of
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.proxy_metrics import ProxyReport
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.transport.access import is_this_machine


def _admit(peer: str, own: str) -> Audience:
    """Admit this machine; others are admitted by metricsWhiteList."""
    return Audience.ADMINISTRATION if is_this_machine(peer, own) else Audience.CLIENT


class ProxyMetricsPort(MetricsService):
    """The exporter, and what it reads.

    Args:
        config: all settings.
        port: the gRPC port in front of the brokers that name servers know.
        node_id: the name of the proxy if the settings have none.
    """

    def __init__(self, config: ProxyConfig, port: GrpcPort, node_id: str) -> None:
        loop, brokers = LoopWatch(), port.brokers
        assert isinstance(brokers, ClusterServiceManager), "in cluster mode"
        access = port.access
        problem = None if access is None else lambda: access.users.problem
        report = ProxyReport(config, node_id, port.figures, loop, brokers.find_masters, problem)
        port.figures.calls = {}
        source = Source(report.report, report, _admit, "", remedy="")
        super().__init__(exporter_of(config, source), loop, report)
