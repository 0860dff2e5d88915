"""The gRPC port of the 5.x SDKs, in a broker's process or in one of its own (ProxyStartup of Apache's proxy).

Nothing here is imported unless the port is enabled: it needs the extra ``grpc``.
"""

import logging
from typing import Protocol

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.proxy.grpc_server import GrpcServer
from rocketbroker.proxy.local_service_manager import LocalServiceManager


log = logging.getLogger(__name__)


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
    """

    def __init__(
        self,
        brokers: LocalServiceManager | ClusterServiceManager,
        config: ProxyConfig,
        bind_address: str,
        host: str,
    ) -> None:
        self._brokers = brokers
        self._server = make_server(brokers, config, bind_address, config.local_serve_addr or host)

    @property
    def port(self) -> int:
        """Port of the SDKs."""
        return self._server.port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is in use, or a certificate cannot be read.
        """
        await self._brokers.start()
        try:
            await self._server.start()
        except BaseException:
            await self._brokers.stop()
            raise

    async def stop(self) -> None:
        """End all calls, then what they wait for."""
        try:
            await self._server.stop()
        finally:
            await self._brokers.stop()


def cluster_port(config: ProxyConfig, client_id: str, host: str) -> GrpcPort:
    """Return the port in front of the brokers that name servers know."""
    return GrpcPort(ClusterServiceManager(config.namesrv_addr, client_id), config, "", host)


def broker_port(broker: InProcessBroker, config: BrokerConfig, bind_address: str) -> GrpcPort:
    """Return the port of a broker in this process.

    Raises:
        ConfigError: The file of ``proxyConfigPath`` cannot be read, or has wrong settings.
    """
    settings = load_proxy_settings(
        config.proxy_config_path or None, [Entry("grpcServerPort", str(config.grpc_server_port), "grpcServerPort")]
    )
    for warning in settings.warnings:
        log.warning("%s", warning)
    return GrpcPort(LocalServiceManager(broker), settings.proxy, bind_address, config.broker_ip1)
