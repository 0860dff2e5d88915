"""Parts shared by producers and consumers (org.apache.rocketmq.client.impl.factory.MQClientInstance)."""

import asyncio
import itertools
import os
import ssl
from types import TracebackType
from typing import NoReturn, Self

from rocketbroker.client.client_config import ClientConfig, client_config
from rocketbroker.client.client_remoting_processor import ClientRemotingProcessor, ConsumerInner, TransactionCheck
from rocketbroker.client.errors import ClientStateError
from rocketbroker.client.heartbeat_sender import HeartbeatSender
from rocketbroker.client.loop_watchdog import LoopWatchdog
from rocketbroker.client.namespace import Namespace
from rocketbroker.client.options import checked
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.client.topic_route_table import TopicRouteTable
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.errors import RemotingConnectError
from rocketbroker.common.lifecycle import MustClose, Part, PartList, stop_all

_instance_numbers = itertools.count(1)


def _client_id(client_ip: str, config: ClientConfig) -> str:
    name = config.instance_name or f"{os.getpid()}#{next(_instance_numbers)}"
    return "@".join(filter(None, (client_ip, name, config.unit_name)))


class ClientInstance(MustClose):
    """Connections, name servers, routes, heartbeats and offsets of one client.

    Args:
        config: ``host:port`` of the name servers, joined by ``;``, or all settings.
        routes: handlers of requests that brokers send.
    """

    @checked
    def __init__(
        self,
        config: str | ClientConfig,
        *,
        routes: dict[int, Route] | None = None,
    ) -> None:
        config = client_config(config)
        self.config = config
        self.namespace = Namespace(config.namespace)
        self._timeout_s = timeout_s = config.mq_client_api_timeout_s
        self.client_ip = config.client_ip or local_address()
        self.client_id = _client_id(self.client_ip, config)
        self._processor = ClientRemotingProcessor()
        self.replies = self._processor.replies
        self.remoting = config.remoting({**self._processor.routes(), **(routes or {})}, self._connection_lost)
        self.name_server = config.name_server(self.remoting)
        self.routes = TopicRouteTable(
            self.name_server.topic_route,
            refresh_interval_s=config.poll_name_server_interval_s,
            on_change=self._processor.rebalance_soon,
            has_brokers=self.name_server.has_brokers,
        )
        self.heartbeats = HeartbeatSender(
            self.remoting,
            self.client_id,
            lambda masters_only: self.routes.addresses(masters_only=masters_only),
            interval_s=config.heartbeat_broker_interval_s,
            timeout_s=timeout_s,
        )
        self.offsets = QueueOffsets(self.invoke_at_broker)
        parts: list[Part] = [self.routes, self.heartbeats]
        if config.loop_blocked_warning_s is not None:
            parts.append(
                LoopWatchdog(
                    self.heartbeats.send_from_thread, config.heartbeat_broker_interval_s, config.loop_blocked_warning_s
                )
            )
        self._parts = PartList(*parts)
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start to refresh routes and to send heartbeats; connections open on first use.

        Raises:
            ClientStateError: the client was started in another event loop, or is closed.
        """
        self.check_loop("client", self.client_id)
        if self._stopping is not None:
            raise ClientStateError(f"client {self.client_id} is closed, and so are its connections; make a new one")
        self._loop = asyncio.get_running_loop()
        await self._parts.start()
        self.mark_open()

    async def stop(self) -> None:
        """Stop, and close the connections; a caller that is cancelled leaves this running, a second one waits.

        Raises:
            ClientStateError: the client was started in another event loop.
        """
        if self.remoting.is_forked:
            return
        self.check_loop("client", self.client_id)
        self.mark_closed()
        if self._stopping is None:
            stop = stop_all(self._parts.stop, self.remoting.stop)
            self._stopping = asyncio.get_running_loop().create_task(stop, name=f"stop {self.client_id}")
        await asyncio.shield(self._stopping)

    def check_loop(self, kind: str, name: str) -> None:
        """Check that a member of this client is used in the event loop of the client's connections.

        Raises:
            ClientStateError: another one runs.
        """
        if self._loop is not None and asyncio._get_running_loop() not in (self._loop, None):
            raise ClientStateError(
                f"{kind} {name} belongs to another event loop; make one in this loop, use it in its own one by "
                "asyncio.run_coroutine_threadsafe, or use SyncClient"
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _connection_lost(self, _connection: Connection, proved: bool) -> None:
        self.heartbeats.connection_lost()
        if proved:  # else the broker has nothing to forget, and who failed by it tries again after its own pause
            self._processor.connection_lost()

    def register_consumer(self, group: str, consumer: ConsumerInner) -> None:
        """Pass requests of brokers for a group to a consumer.

        Raises:
            ClientStateError: the group has a consumer on this client.
        """
        if group in self._processor.consumers:
            raise ClientStateError(
                f"group {group} already has a consumer on client {self.client_id}; "
                "give the second one a client of its own"
            )
        self._processor.consumers[group] = consumer

    def unregister_consumer(self, group: str) -> None:
        """Pass on no more requests for a group."""
        self._processor.consumers.pop(group, None)

    def register_transaction_checks(self, group: str, check: TransactionCheck) -> None:
        """Pass requests of brokers for outcomes of a group's transactions to a producer.

        Raises:
            ClientStateError: the group has a transaction producer on this client.
        """
        if group in self._processor.transaction_checks:
            raise ClientStateError(
                f"group {group} already has a transaction producer on client {self.client_id}; "
                "give the second one a client of its own"
            )
        self._processor.transaction_checks[group] = check

    def unregister_transaction_checks(self, group: str) -> None:
        """Pass on no more requests for outcomes."""
        self._processor.transaction_checks.pop(group, None)

    def send_address(self, queue: MessageQueue) -> str:
        """Return the address that messages for a queue are sent to: by the VIP channel if that is enabled.

        Raises:
            BrokerNotFoundError: no address for the broker.
        """
        address = self.routes.broker_address(queue)
        self.heartbeats.greet_soon(address)
        if not self.config.vip_channel_enabled:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    async def greet_all_brokers(self, topic: str, timeout_s: float) -> None:
        """Let all brokers of a topic know the groups of this client; wait as long as the limit allows.

        Raises:
            TopicRouteError, NameServerError: no route for the topic.
            RemotingTimeoutError: no route in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self.routes.publish_route(topic, timeout_s)
        addresses = self.routes.addresses(masters_only=True)
        await asyncio.gather(*(self.heartbeats.greet(address, deadline - loop.time()) for address in addresses))

    async def invoke_at_broker(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        """Send a request to the master of a queue, which knows the client's groups by then.

        Raises:
            TopicRouteError, NameServerError, BrokerNotFoundError: no address for the broker.
            RemotingError: the broker does not answer.
        """
        return await self.invoke_at(queue, MASTER_ID, command, timeout_s or self._timeout_s)

    async def invoke_at(
        self, queue: MessageQueue, broker_id: int, command: Command, timeout_s: float, *, exactly: bool = True
    ) -> Command:
        """Send a request to a broker with a queue; ``exactly`` as for ``TopicRouteTable.broker_address``.

        The route, the heartbeat, the connect and the answer share the limit.

        Raises:
            TopicRouteError, NameServerError, BrokerNotFoundError: no address for the broker.
            RemotingError: the broker does not answer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self.routes.route(queue.topic, timeout_s)
        address = self.routes.broker_address(queue, broker_id, exactly=exactly)
        await self.heartbeats.greet(address, deadline - loop.time())
        try:
            return await self.remoting.invoke(address, command, deadline - loop.time())
        except RemotingConnectError as error:
            raise_unreachable(queue.broker_name, error)


def raise_unreachable(broker_name: str, error: RemotingConnectError, *, by_vip_channel: bool = False) -> NoReturn:
    """Raise the error of a failed connect; add what to do if the address of the broker does not answer."""
    cause = error.__cause__
    if not isinstance(cause, OSError) or isinstance(cause, ssl.SSLError):
        raise error
    advice = (
        f"broker {broker_name} advertised this address: if it runs, set its brokerIP1 (and listenPort) to an address "
        "that this machine reaches"
    )
    if by_vip_channel:
        advice = (
            f"this is the second port of broker {broker_name}, listenPort - 2: set vip_channel_enabled=False unless "
            "the broker listens there"
        )
    raise RemotingConnectError(f"{error}; {advice}") from error
