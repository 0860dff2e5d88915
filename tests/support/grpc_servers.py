"""Servers of the gRPC protocol for the tests with official SDKs, by name, each with its own way to start."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from tests.support.java import PROXY_GRPC, Java
from tests.support.java_process import JavaServer
from tests.support.our_servers import OurServer, OurServers, launch_serving, make_topic
from tests.support.ports import LOOPBACK, free_ports

Server = TypeVar("Server", bound=JavaServer)
DEAD_LETTER_LIMIT = 60  # seconds
# What the scenarios need of a broker: recalls, filters by SQL92, and checks of transactions within seconds.
SETTINGS: dict[str, str | int] = {
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}


class Part(Generic[Server]):
    """A process that starts again on the same ports and store; `start` takes the one before, if there was one."""

    def __init__(self, start: Callable[[Server | None], Server]) -> None:
        self._start = start
        self.process = start(None)

    def end(self, *, is_killed: bool) -> None:
        """End the process, in order unless it is killed."""
        if is_killed:
            self.process.kill()
        else:
            self.process.stop()

    def start(self) -> None:
        """Start it again; it serves when this returns."""
        self.process = self._start(self.process)


class GrpcServer:
    """A name server, a broker and its gRPC port, which a proxy may have; `parts` can end, each after those it needs."""

    def __init__(self, name: str, namesrv: str, broker: str, endpoints: str, parts: dict[str, Part[Any]]) -> None:
        self.name = name
        self.namesrv = namesrv
        self.broker = broker
        self.endpoints = endpoints
        self.parts = parts

    @property
    def restarts(self) -> list[list[str]]:
        """The names of the parts that a test restarts together: each alone, then all."""
        alone = [[name] for name in self.parts]
        return alone if len(alone) == 1 else [*alone, [*self.parts]]

    def restart(self, names: list[str], *, is_killed: bool = False) -> None:
        """End these parts and start them again on the same ports and store; they serve when this returns."""
        for name in reversed(names):
            self.parts[name].end(is_killed=is_killed)
        for name in names:
            self.parts[name].start()

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
    proxy = Part[JavaServer](lambda old: java.proxy(namesrv, old.port if old else 0, **SETTINGS))
    host, port = proxy.process.host, proxy.process.port
    return GrpcServer("apache", namesrv, proxy.process.address, f"{host}:{port + PROXY_GRPC}", {"proxy": proxy})


def cluster(java: Java, servers: OurServers) -> GrpcServer:
    """Start our name server and our broker, and Apache's proxy in CLUSTER mode before them."""
    namesrv, broker = _our_broker(servers)
    proxy = Part[JavaServer](lambda old: java.cluster_proxy(namesrv, old.port if old else 0))
    return GrpcServer(
        "cluster", namesrv, broker.process.address, proxy.process.address, {"broker": broker, "proxy": proxy}
    )


def our_proxy_before_apache(java: Java, servers: OurServers) -> GrpcServer:
    """Start Apache's name server and broker, and mqproxy before them."""
    namesrv = java.namesrv().address

    def start(old: JavaServer | None) -> JavaServer:
        return java.broker(namesrv, old.store if old else None, listenPort=old.port if old else 0, **SETTINGS)

    broker = Part(start)
    proxy = _our_proxy(servers, namesrv)
    return GrpcServer(
        "proxy-apache", namesrv, broker.process.address, proxy.process.address, {"broker": broker, "proxy": proxy}
    )


def our_server(servers: OurServers) -> GrpcServer:
    """Start our name server, and our broker with its gRPC port."""
    port = free_ports(2)  # the VIP port of the broker is 2 lower than its next one
    namesrv, broker = _our_broker(servers, grpcServerEnable="true", grpcServerPort=port)
    return GrpcServer("ours", namesrv, broker.process.address, f"{LOOPBACK}:{port}", {"broker": broker})


def our_proxy(servers: OurServers, **settings: str | int) -> GrpcServer:
    """Start our name server and broker, and mqproxy with these settings before them."""
    namesrv, broker = _our_broker(servers)
    proxy = _our_proxy(servers, namesrv, **settings)
    return GrpcServer(
        "our-proxy", namesrv, broker.process.address, proxy.process.address, {"broker": broker, "proxy": proxy}
    )


def _our_broker(servers: OurServers, **settings: str | int) -> tuple[str, Part[OurServer]]:
    """Start our name server and broker; return the address of the one, and the other."""
    namesrv = servers.namesrv()
    return namesrv.address, Part(lambda old: launch_serving(servers, namesrv, SETTINGS | settings, old))


def _our_proxy(servers: OurServers, namesrv: str, **settings: str | int) -> Part[OurServer]:
    return Part(lambda old: servers.proxy("-n", namesrv, port=old.port if old else 0, **settings))


#: How a test starts the server of a name.
LAUNCHERS: dict[str, Callable[[Java, OurServers], GrpcServer]] = {
    "ours": lambda _java, servers: our_server(servers),
    "our-proxy": lambda _java, servers: our_proxy(servers),
    "proxy-apache": our_proxy_before_apache,
    "cluster": cluster,
    "apache": apache,
}
