"""Metrics and health of mqproxy in cluster mode: what its exporter reads.

Nothing here is imported without an exporter.
"""

from rocketbroker.app.grpc_port import GrpcPort
from rocketbroker.app.metrics_service import MetricsService, Source, exporter_of
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.tls_settings import TlsMode, TlsSettings
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.proxy_metrics import ProxyReport
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.transport.access import is_this_machine
from rocketbroker.transport.tls_contexts import watched_server_context
from rocketbroker.transport.tls_transport import ServerTls


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
        report = ProxyReport(config, node_id, port.figures, loop, brokers.find_masters, port.access)
        port.figures.calls = {}
        tls = _Tls(config)
        source = Source(report.report, report, _admit, "", remedy="", tls=tls.server)
        super().__init__(exporter_of(config, source), loop, report, tls)


class _Tls:
    """The certificate of the gRPC port for the port of metrics, renewed as there (blocks: reads files).

    A certificate that the gRPC port makes at its start is no use here: Prometheus could not verify it.
    """

    def __init__(self, config: ProxyConfig) -> None:
        is_given = config.tls_cert_path and not config.tls_test_mode_enable
        mode: TlsMode = "permissive" if config.grpc_plain_text_enable else "enforcing"
        settings = TlsSettings(
            tls_server_mode=mode,
            tls_server_cert_path=config.tls_cert_path if is_given else "",
            tls_server_key_path=config.tls_key_path if is_given else "",
            tls_server_key_password=config.tls_key_password,
            tls_ciphers=config.tls_ciphers,
            tls_protocols=config.tls_protocols,
        )
        self._period_s = config.tls_cert_watch_interval_ms / 1000
        self._tasks = TaskOwner("ProxyMetricsPort")
        self._context = watched_server_context(settings)
        self.server = None if self._context is None else ServerTls(self._context, plain=mode == "permissive")

    async def start(self) -> None:
        """Look at the files from now on."""
        if self._context is not None:
            self._tasks.every(self._period_s, self._context.renew, "certificates")

    async def stop(self) -> None:
        await self._tasks.stop()
