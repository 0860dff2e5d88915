"""Connections of one client, and the members of groups that share them (MQClientInstance of RocketMQ)."""

import asyncio
import itertools
import os
import ssl
import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self

from rocketbroker.client.core.client_config import ClientConfig, client_config
from rocketbroker.client.core.client_remoting_processor import ClientRemotingProcessor, ConsumerInner, TransactionCheck
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.heartbeat_sender import HeartbeatSender, LoopWatchdog
from rocketbroker.client.core.message import check_group
from rocketbroker.client.core.options import checked
from rocketbroker.client.core.requests import QueueOffsets
from rocketbroker.client.core.topic_route_table import TopicRouteTable
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.errors import RemotingConnectError
from rocketbroker.common.lifecycle import MustClose, Part, PartList, stop_all

_SEPARATOR = "%"
_KINDS = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


class Namespace:
    """A namespace; with an empty name, names stay as they are.

    Args:
        name: name of the namespace.
    """

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}{_SEPARATOR}" if name else ""

    def wrap(self, name: str) -> str:
        """Return the name that brokers know: ``Orders`` becomes ``name%Orders``."""
        if not self._prefix or not name:
            return name
        kind, own = _split(name)
        if own.startswith((self._prefix, CID_RMQ_SYS_PREFIX)) or is_system_topic(name):
            return name
        return f"{kind}{self._prefix}{own}"

    def unwrap(self, name: str) -> str:
        """Return the name without the namespace; names of other namespaces stay as they are."""
        if not self._prefix:
            return name
        kind, own = _split(name)
        return kind + own.removeprefix(self._prefix)


def _split(name: str) -> tuple[str, str]:
    """Return the prefix of retry and dead-letter topics, and the rest."""
    kind = next((kind for kind in _KINDS if name.startswith(kind)), "")
    return kind, name[len(kind) :]


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
        self._check_free(group in self._processor.consumers, f"group {group} already has a consumer")
        self._processor.consumers[group] = consumer

    def unregister_consumer(self, group: str) -> None:
        """Pass on no more requests for a group."""
        self._processor.consumers.pop(group, None)

    def register_transaction_checks(self, group: str, check: TransactionCheck) -> None:
        """Pass requests of brokers for outcomes of a group's transactions to a producer.

        Raises:
            ClientStateError: the group has a transaction producer on this client.
        """
        self._check_free(
            group in self._processor.transaction_checks, f"group {group} already has a transaction producer"
        )
        self._processor.transaction_checks[group] = check

    def _check_free(self, taken: bool, text: str) -> None:
        if taken:
            raise ClientStateError(f"{text} on client {self.client_id}; give the second one a client of its own")

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


class GroupMember(MustClose, ABC):
    """A member of a group, usable between ``start`` and ``close`` or within ``async with``."""

    # Kind of member, for error texts.
    kind = "member"

    def __init__(self, group: str, config: str | ClientConfig, client: ClientInstance | None) -> None:
        check_group(group)
        self._owns_client = client is None
        self._client = client or ClientInstance(config)
        self.group = self._client.namespace.wrap(group)
        self._started = False
        # The close that was begun last, and the exception that was being handled then.
        self._closing: asyncio.Task[None] | None = None
        self._closing_error: BaseException | None = None

    @abstractmethod
    def _join(self) -> None:
        """Add the group to the heartbeats."""

    @abstractmethod
    async def _leave(self) -> None:
        """Unregister at the brokers."""

    async def start(self) -> None:
        """Start; each broker learns of the group on first use.

        Raises:
            ClientStateError: the client was started in another event loop.
        """
        self._client.check_loop(self.kind, self.group)
        if self._owns_client:
            await self._client.start()
            self._client.mark_closed()  # the warning names this member
        try:
            self._join()
        except BaseException:
            if self._owns_client:
                await self._client.stop()
            raise
        self._started = True
        self.mark_open()

    async def close(self) -> None:
        """Unregister at the brokers and close the connections.

        The close runs to its end once it has begun: a caller that is cancelled, for example by ``asyncio.timeout``,
        leaves it running, and a second ``close`` waits for it. Half a close would leave a member in the heartbeats that
        keeps its queues and consumes nothing.

        Raises:
            ClientStateError: the member belongs to another event loop.
        """
        if self._started:
            if self._client.remoting.is_forked:
                self._started = False
                return  # the process that was forked from keeps the connections
            self._client.check_loop(self.kind, self.group)
            self._started = False
            self.mark_closed()
            self._closing_error = sys.exception()
            self._closing = asyncio.get_running_loop().create_task(self._close(), name=f"close {self.group}")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await stop_all(self._leave, self._client.stop if self._owns_client else None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_started(self) -> None:
        if self._client.remoting.is_forked:
            raise ClientStateError(
                f"{self.kind} {self.group} belongs to the process that this one was forked from; "
                "make one after the fork"
            )
        if not self._started:
            raise ClientStateError(f"{self.kind} {self.group} is not started, or is closed; use it within 'async with'")
        self._client.check_loop(self.kind, self.group)
