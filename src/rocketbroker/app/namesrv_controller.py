"""The parts of a name server, started and stopped together (org.apache.rocketmq.namesrv.NamesrvController).

``mqnamesrv`` runs one alone, ``mqdev`` one beside a broker in the same process.
"""

import ipaddress
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rocketbroker.app.access_control import AccessControl, own_binder, own_signer
from rocketbroker.app.logging_setup import set_level
from rocketbroker.app.server_process import limits_of
from rocketbroker.auth.audit_log import AuditLog
from rocketbroker.auth.request_rights import ROUTE_READS
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.config.load import NamesrvSettings
from rocketbroker.common.lifecycle import PartList, TaskOwner, stop_all, uninterrupted
from rocketbroker.namesrv.address_server import AddressServer
from rocketbroker.namesrv.broker_table import HolderProbe
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier, MinBrokerIdSender
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.namesrv.changes import namesrv_changes
from rocketbroker.processor.namesrv_table import ConfigStore, NamesrvExecutors, namesrv_routes
from rocketbroker.processor.support.audited import audit_of
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.endpoint import EndpointHooks
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from rocketbroker.transport.tls_transport import RemotingTls

if TYPE_CHECKING:
    from rocketbroker.app.namesrv_metrics_port import NamesrvMetricsPort


class NamesrvController:
    """The parts of a name server.

    Args:
        settings: all settings; ``listenPort`` 0 binds a free port.

    ``port`` and ``address`` are known once it is started; ``routes`` maps request codes to handlers.
    """

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings
        self._tasks = TaskOwner("namesrv")
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="namesrv-persist")
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="namesrv-decode")
        transport = settings.transport
        self._tls = RemotingTls(transport)
        signer = own_signer(transport)
        self._client = RemotingClient(
            tls=self._tls.outgoing, before_request=None if signer is None else signer.sign, bind=own_binder(transport)
        )
        config = settings.namesrv
        clock = SystemClock()
        open_codes = frozenset() if config.authorize_route_reads else ROUTE_READS
        folder = Path(config.kv_config_path).parent
        self.access = AccessControl.of(
            transport, config.cluster_name, folder, clock, open_codes, option="-b <name server>"
        )
        self.kv_config_manager = KVConfigManager(config, self._executor)
        self.route_info_manager = RouteInfoManager(
            config, clock, MinBrokerIdNotifier(config, self._notify), HolderProbe(self._tasks).ask
        )
        self._sender = MinBrokerIdSender(self.route_info_manager.brokers.live, self._client, self._tasks)
        executors = NamesrvExecutors(persist=self._executor, decode=self._decoder)
        store = ConfigStore(settings.models, settings.persist_path, self._settings_changed)
        table = None if self.access is None else self.access.store
        routes = namesrv_routes(config, self.route_info_manager, self.kv_config_manager, store, executors, clock, table)
        self._audit = AuditLog("namesrv", clock)
        if self.access is not None:
            self.access.guard.refusals.audit = self._audit
        changes = namesrv_changes(self.route_info_manager, self.kv_config_manager, settings.models, table)
        audit = audit_of(changes, self._audit)
        self.routes = {code: audit(route) for code, route in routes.items()}
        mode = ProtectedMode(transport)
        self._server = RemotingServer(
            self.routes if self.access is None else self.access.guard.routes(self.routes),
            host=transport.bind_address,
            port=transport.listen_port,
            limits=limits_of(transport),
            hooks=EndpointHooks(
                on_close=self.route_info_manager.connection_closed,
                admit=mode,
                is_trusted=mode.trusts,
                on_refused=self._audit.refused_request,
            ),
            tls=self._tls.server,
            send_away_s=lambda: transport.send_away_s,
        )
        self.address_server: AddressServer | None = None
        if config.address_server_enable:
            self.address_server = AddressServer(
                config.address_server_bind_address, config.address_server_port, self._name_servers, self._tls.server
            )
        self.metrics = self._make_metrics_port(mode)
        parts = self.access, self._audit, self._server, self.address_server, self.metrics
        self._parts = PartList(*(part for part in parts if part is not None))

    def _make_metrics_port(self, mode: ProtectedMode) -> "NamesrvMetricsPort | None":
        """Return the exporter of metrics, ``None`` without one.

        Raises:
            ConfigError: It lacks a package or a setting.
        """
        if self._settings.namesrv.metrics_exporter_type == "DISABLE":
            return None
        from rocketbroker.app.namesrv_metrics_port import NamesrvMetricsPort

        settings, routes = self._settings, self.route_info_manager
        guard = None if self.access is None else self.access.guard
        return NamesrvMetricsPort(settings, routes, self._server, mode, lambda: self.address, guard)

    @property
    def port(self) -> int:
        """Port of the name server."""
        return self._server.port

    @property
    def address(self) -> str:
        """``host:port`` for clients: the bound address, or this machine's when all addresses are bound."""
        host = self._settings.transport.bind_address
        if not host or _is_unspecified(host):
            host = local_address()
        return join_address(host, self.port)

    def _name_servers(self) -> str:
        return self._settings.namesrv.address_server_name_servers or self.address

    async def start(self) -> None:
        """Load the key-value configuration, listen, and scan for silent brokers.

        Raises:
            ConfigError: The key-value file cannot be read, or a port is in use.
        """
        self.kv_config_manager.load()
        if self.access is not None:
            self.access.load()
        await self._parts.start()
        self._tls.watch(self._tasks)
        interval_s = self._settings.namesrv.scan_not_active_broker_interval / 1000
        self._tasks.every(interval_s, self.route_info_manager.scan_not_active_broker, "scanNotActiveBroker")

    async def stop(self) -> None:
        """Stop listening, close all connections, and end the background tasks, also if the caller is cancelled."""
        await uninterrupted(
            stop_all(
                self._tasks.stop,
                self._parts.stop,
                None if self.access is None else self.access.release,
                self._client.stop,
                self._executor.shutdown,
                lambda: self._decoder.shutdown(cancel_futures=True),
            )
        )

    def _settings_changed(self, names: Collection[str]) -> None:
        if "logLevel" in names:
            set_level(self._settings.namesrv.log_level or None)
        self.route_info_manager.answers.forget()
        self._server.readmit()

    def _notify(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        self._sender.send(address, header)


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
