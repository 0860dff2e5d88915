"""The gRPC port of the 5.x SDKs, in a broker's process or in one of its own (ProxyStartup of Apache's proxy).

Nothing here is imported unless the port is enabled: it needs the extra ``grpc``.
"""

import logging
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Protocol

from rocketbroker.app.access_control import own_binder, own_signer
from rocketbroker.app.proxy_access import ProxyAccess
from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.certificates import ServerCertificate, load_certificate, load_issuers, self_signed_certificate
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.common.config.tls_settings import has_certificate
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import PartList
from rocketbroker.common.open_files import connection_limit
from rocketbroker.proxy.call_guard import CallGuard
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.proxy.grpc_server import GrpcLimits, GrpcServer, Tls
from rocketbroker.proxy.local_service_manager import LocalServiceManager
from rocketbroker.proxy.messaging_pb2 import Address, AddressScheme, Endpoints
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.transport.peer_limits import ConnectionLimits

log = logging.getLogger(__name__)

_IPV4: Final = 4
# As the other ports look for a new certificate of the broker.
_WATCH_MS: Final = 10_000


class BrokerParts(Protocol):
    """Parts of a broker that its gRPC port works on; ``BrokerController`` has them."""

    routes: dict[int, Route]
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager

    @property
    def address(self) -> str:
        """``ip:port`` of the remoting port."""

    def end_batch(self) -> None:
        """Dispatch stored messages."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget a client."""


class InProcessBroker:
    """A broker of this process; implements ``proxy.service_manager.LocalBroker``."""

    def __init__(self, config: BrokerConfig, parts: BrokerParts, polling: PopLongPollingService) -> None:
        self.routes = parts.routes
        self.broker_name = config.broker_name
        self.cluster_name = config.broker_cluster_name
        self.address = parts.address
        self._topics = parts.topic_configs
        self._groups = parts.subscription_groups
        self._polling = polling
        self.end_batch = parts.end_batch
        self.connection_closed = parts.connection_closed

    def topic_config(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic, ``None`` if there is none."""
        return self._topics.select(topic)

    def subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group, which is made if it may be; ``None`` otherwise."""
        return self._groups.find(group)

    def drop_held(self, connection: Connection, command: Command) -> None:
        """Forget a held pop that nobody waits for any more."""
        self._polling.drop(connection, command)


class GrpcPort:
    """The port: a service over brokers, and the server that carries it.

    Args:
        brokers: the brokers; started before the server and stopped after it.
        config: its settings.
        bind_address: address to listen on.
        host: address in routes, unless ``localServeAddr`` names one.
        clock: clock of messages.
        guard: check of calls; without it, all are served.
        access: access control of a proxy, started with the port.

    Raises:
        ConfigError: A certificate cannot be read.
    """

    def __init__(
        self,
        brokers: LocalServiceManager | ClusterServiceManager,
        config: ProxyConfig,
        bind_address: str,
        host: str,
        clock: Clock | None = None,
        guard: CallGuard | None = None,
        access: ProxyAccess | None = None,
    ) -> None:
        self.brokers = brokers
        self._host = config.local_serve_addr or host
        # Filled once the port is known; routes have a copy.
        self._endpoints = Endpoints()
        self._service = MessagingService(brokers, self._endpoints, clock, config)
        self._server = GrpcServer(
            self._service,
            host=bind_address,
            port=config.grpc_server_port,
            tls=_tls(config),
            limits=_limits(config),
            guard=guard,
        )
        self.access = access
        self._parts = PartList(brokers, *([] if access is None else [access]), self._service, self._server)

    @property
    def port(self) -> int:
        """Port of the SDKs."""
        return self._server.port

    @property
    def figures(self) -> GrpcServer:
        """The server, for metrics."""
        return self._server

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is in use.
        """
        await self._parts.start()
        self._endpoints.CopyFrom(_endpoints(self._host, self.port))
        address = join_address(self._host, self.port)
        if self._service.follows_clients:
            log.info("gRPC port: routes lead clients to the host that they ask at, or to %s (localServeAddr)", address)
        else:
            log.info("gRPC port: routes lead clients to %s (localServeAddr)", address)

    async def stop(self) -> None:
        """End all calls, then what they wait for."""
        await self._parts.stop()


def _limits(config: ProxyConfig) -> GrpcLimits:
    descriptors = connection_limit()
    # A relayed connection has three ends in this process.
    max_connections, cause = config.max_connections, "maxConnections"
    if max_connections > descriptors // 3:
        max_connections = descriptors // 3
        cause = f"ulimit -n: connections may open {descriptors:,} files, and each needs three; raise it for more"
    connections = ConnectionLimits(
        max_connections=max_connections,
        max_connections_cause=cause,
        max_connections_per_address=config.max_connections_per_address,
        max_held_bytes=config.max_held_bytes,
        max_descriptor=descriptors,
    )
    return GrpcLimits(
        max_message_size=config.grpc_max_inbound_message_size,
        # One connection may not keep all others out.
        max_calls=min(config.grpc_max_concurrent_calls_per_connection, max(1, config.grpc_max_open_calls // 2)),
        max_open_calls=config.grpc_max_open_calls,
        max_idle_s=config.grpc_client_idle_time_mills / 1000,
        max_stop_s=config.grpc_shutdown_time_seconds,
        connections=connections,
    )


def _tls(config: ProxyConfig) -> Tls | None:
    trusted = Path(config.tls_trust_cert_path) if config.tls_trust_cert_path else None
    self_signed = self_signed_certificate(SystemClock()) if config.tls_test_mode_enable else None
    if self_signed is None and not config.tls_cert_path:
        return None

    issuers = b""

    def load() -> ServerCertificate:
        nonlocal issuers
        if trusted is not None:  # first: a revocation list counts even if the other files do not fit
            issuers = load_issuers(trusted, issuers or None)
        found = self_signed or load_certificate(
            Path(config.tls_cert_path), Path(config.tls_key_path), config.tls_key_password
        )
        return found._replace(client_issuers=issuers)

    return Tls(load(), config.grpc_plain_text_enable, load, config.tls_cert_watch_interval_ms / 1000)


def _endpoints(host: str, port: int) -> Endpoints:
    """Return an address as routes have it."""
    try:
        scheme = AddressScheme.IPv4 if ip_address(host).version == _IPV4 else AddressScheme.IPv6
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])


def cluster_port(config: ProxyConfig, client_id: str, host: str, clock: Clock | None = None) -> GrpcPort:
    """Return the port in front of the brokers that name servers know, whose users and policies count.

    Raises:
        ConfigError: A setting of access control is not valid, or a certificate cannot be read.
    """
    clock, signer = clock or SystemClock(), own_signer(config)
    brokers = ClusterServiceManager(client_id, config, None if signer is None else signer.sign, own_binder(config))
    access = ProxyAccess.of(config, brokers, clock)
    return GrpcPort(brokers, config, "", host, clock, None if access is None else access.calls, access)


def _tls_entries(transport: TransportConfig) -> list[Entry]:
    """Return the settings by which a gRPC port has the certificate and the demands of its broker."""
    if transport.tls_server_mode == "disabled" or not has_certificate(transport):
        return []
    is_plain = transport.tls_server_mode == "permissive"
    is_self_signed = not transport.tls_server_cert_path
    found = {
        "tlsTestModeEnable": str(is_self_signed).lower(),
        "tlsCertPath": transport.tls_server_cert_path,
        "tlsKeyPath": transport.tls_server_key_path,
        "tlsKeyPassword": transport.tls_server_key_password,
        "tlsCertWatchIntervalMs": str(_WATCH_MS),
        "grpcPlainTextEnable": str(is_plain).lower(),
        "tlsTrustCertPath": _issuers(transport),
    }
    source = "tls.test.mode.enable" if is_self_signed else "tls.server.certPath"
    return [Entry(name, value, source) for name, value in found.items()]


def _issuers(transport: TransportConfig) -> str:
    """Return the file of the issuers whose clients a broker demands, empty if it demands no certificate.

    Raises:
        ConfigError: Those of the system are demanded, which has no such file.
    """
    demand = transport.tls_server_need_client_auth
    if demand != "require":
        if demand == "optional":
            log.warning(
                "gRPC port: tls.server.need.client.auth=optional counts for the other ports, as gRPC demands a "
                "certificate or asks for none; this port asks for none"
            )
        return ""
    found = transport.tls_server_trust_cert_path or ssl.get_default_verify_paths().cafile
    if not found:
        raise ConfigError(
            "tls.server.authClient=true: the system has no file of issuers for the gRPC port; name one by "
            "tls.server.trustCertPath"
        )
    return found


def broker_port(
    broker: InProcessBroker,
    config: BrokerConfig,
    transport: TransportConfig,
    clock: Clock,
    guard: RequestGuard | None = None,
) -> GrpcPort:
    """Return the port of a broker in this process, whose certificate, users and policies count for calls, too.

    Raises:
        ConfigError: The file of ``proxyConfigPath`` cannot be read, or has wrong settings.
    """
    port = Entry("grpcServerPort", str(config.grpc_server_port), "grpcServerPort")
    settings = load_proxy_settings(config.proxy_config_path or None, [port], _tls_entries(transport))
    for warning in settings.warnings:
        log.warning("%s", warning)
    for note in settings.notes:
        log.info("%s", note)
    if settings.proxy.authentication_enabled and guard is None:
        raise ConfigError(
            f"authenticationEnabled=true in {config.proxy_config_path} needs the same in the settings of the broker, "
            "whose users and policies count for its gRPC port"
        )
    calls = None if guard is None else CallGuard(guard)
    return GrpcPort(
        LocalServiceManager(broker), settings.proxy, transport.bind_address, config.broker_ip1, clock, calls
    )
