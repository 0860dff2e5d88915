"""Servers of the gRPC protocol for the tests with official SDKs, by name, each with its own way to start."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from tests.support.java import PROXY_GRPC, Java
from tests.support.our_servers import OurServers, launch_serving, make_topic
from tests.support.ports import LOOPBACK, free_ports

DEAD_LETTER_LIMIT = 60  # seconds
# What the scenarios need of a broker: recalls, filters by SQL92, and checks of transactions within seconds.
SETTINGS: dict[str, str | int] = {
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}


@dataclass(slots=True)
class GrpcServer:
    """A name server, a broker and its gRPC port; `_restart` ends the server in order and starts it again."""

    name: str
    namesrv: str
    broker: str
    endpoints: str
    _restart: Callable[[], None]

    def restart(self) -> None:
        """End the server and start it again on the same ports and store; it serves when this returns."""
        self._restart()

    def make_topic(self, topic: str, message_type: str = "NORMAL") -> None:
        """Make a topic for messages of one type."""
        make_topic(self.broker, self.namesrv, topic, message_type=message_type)

    def make_group(self, group: str, *, orderly: bool = False, retry_max_times: int = 16) -> None:
        """Make a consumer group."""
        config = SubscriptionGroupConfig(group, consume_message_orderly=orderly, retry_max_times=retry_max_times)

        async def make() -> None:
            async with AdminClient(self.namesrv) as admin:
                await admin.create_and_update_subscription_group_config(self.broker, config)

        asyncio.run(make())

    def dead_letters(self, group: str, number: int) -> list[MessageExt]:
        """Wait for so many dead letters of a group; return them."""

        async def read() -> list[MessageExt]:
            messages: list[MessageExt] = []
            async with (
                asyncio.timeout(DEAD_LETTER_LIMIT),
                PullConsumer(f"{group}_dead", self.namesrv) as consumer,
                aclosing(consumer.iterate(f"%DLQ%{group}")) as stream,
            ):
                async for message in stream:
                    messages.append(message)
                    if len(messages) == number:
                        break
            return messages

        return asyncio.run(read())


def apache(java: Java, _servers: OurServers) -> GrpcServer:
    """Start Apache's proxy in LOCAL mode and its name server."""
    namesrv = java.namesrv().address
    proxy = java.proxy(namesrv, **SETTINGS)

    def restart() -> None:
        java.started[-1].stop()
        java.proxy(namesrv, proxy.port, **SETTINGS)

    return GrpcServer("apache", namesrv, proxy.address, f"{proxy.host}:{proxy.port + PROXY_GRPC}", restart)


def cluster(java: Java, servers: OurServers) -> GrpcServer:
    """Start our name server and our broker, and Apache's proxy in CLUSTER mode before them."""
    namesrv = servers.namesrv()
    broker = launch_serving(servers, namesrv, SETTINGS)
    proxy = java.cluster_proxy(namesrv.address)

    def restart() -> None:
        servers.started[-1].stop()
        launch_serving(servers, namesrv, SETTINGS, broker)

    return GrpcServer("cluster", namesrv.address, broker.address, proxy.address, restart)


def ours(_java: Java, servers: OurServers) -> GrpcServer:
    """Start our servers, which need no Java."""
    return our_server(servers)


def our_server(servers: OurServers) -> GrpcServer:
    """Start our name server, and our broker with its gRPC port."""
    namesrv, port = servers.namesrv(), free_ports(2)  # the VIP port of the broker is 2 lower than its next one
    settings = SETTINGS | {"grpcServerEnable": "true", "grpcServerPort": port}
    broker = launch_serving(servers, namesrv, settings)

    def restart() -> None:
        servers.started[-1].stop()
        launch_serving(servers, namesrv, settings, broker)

    return GrpcServer("ours", namesrv.address, broker.address, f"{LOOPBACK}:{port}", restart)


def our_proxy(servers: OurServers) -> GrpcServer:
    """Start our name server and broker, and mqproxy before them."""
    namesrv = servers.namesrv()
    broker = launch_serving(servers, namesrv, SETTINGS)
    proxy = servers.proxy("-n", namesrv.address)

    def restart() -> None:
        broker.stop()
        launch_serving(servers, namesrv, SETTINGS, broker)

    return GrpcServer("proxy", namesrv.address, broker.address, proxy.address, restart)


#: How a test starts the server of a name.
LAUNCHERS: dict[str, Callable[[Java, OurServers], GrpcServer]] = {"ours": ours, "apache": apache, "cluster": cluster}
