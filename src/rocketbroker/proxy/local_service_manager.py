"""The broker in this process behind the gRPC front (LocalServiceManager, LocalMessageService of Apache's proxy).

A request of a gRPC client takes the route that it would take by remoting: the processor gets a typed header, and a
connection that stands for the client. Sends of one turn of the event loop are dispatched together, like those of one
read event.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import LENGTH, decode_frame
from rocketbroker.codec.remoting.handler import HELD, Answer, Audience, InTurn, Route
from rocketbroker.codec.remoting.remoting_command import (
    FLAG_RESPONSE,
    Command,
    RemotingCommand,
    response,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import address_key, is_loopback
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.service_manager import LocalBroker, ProxyChannel
from rocketbroker.transport.responder import error_answer


class LocalConnection:
    """A gRPC client as the broker's connection; implements ``codec.remoting.handler.Connection``.

    Whoever calls the front is a client: administration needs remoting.
    """

    audience = Audience.CLIENT
    is_behind = False
    waited_s = 0.0

    def __init__(self, channel: ProxyChannel, tasks: TaskOwner) -> None:
        self.channel = channel
        self.remote_address = channel.remote_address
        host, _, port = channel.remote_address.rpartition(":")
        self.remote_host = host_bytes(host.strip("[]").removeprefix("::ffff:"), int(port))
        key = address_key(self.remote_host)
        self.share = None if is_loopback(key) else key
        self.is_open = True
        self.last_read = asyncio.get_running_loop().time()
        self._tasks = tasks
        # Requests that the broker holds, by opaque.
        self.held: dict[int, asyncio.Future[Command]] = {}

    def answer(self, command: Command, make: Callable[[], Answer]) -> None:
        """Answer a held request, unless its client waits no longer."""
        future = self.held.get(command.opaque)
        if future is None or future.done():
            return
        try:
            answer = make()
        except Exception as error:  # noqa: BLE001 - logged and answered
            answer = error_answer(command.code, error)
        if answer is HELD:
            return
        del self.held[command.opaque]
        work = answer.work if isinstance(answer, InTurn) else answer
        if isinstance(work, Awaitable):
            self._tasks.start(self._finish(future, command, work), f"request-{command.code}")
        else:
            future.set_result(_answer_of(work))

    async def _finish(self, future: asyncio.Future[Command], command: Command, work: Awaitable[Any]) -> None:
        answer = await _awaited(command.code, work)
        if not future.done():
            future.set_result(answer)

    def flush(self) -> None:
        """Do nothing: answers are not collected."""

    def send_oneway(self, command: Command) -> bool:
        """Pass a request on to the client; return false if it has no telemetry stream."""
        return self.is_open and self.channel.send_oneway(command)

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Pass a request on to the client and return its answer.

        Raises:
            RemotingSendError: It has no telemetry stream, or closed it.
            RemotingTimeoutError: It did not answer in time.
        """
        return await self.channel.invoke(command, timeout_s)

    def close(self, reason: str) -> None:
        """Serve the client no longer; ``reason`` is the broker's."""
        self.is_open = False
        for future in self.held.values():
            if not future.done():
                future.set_result(response(ResponseCode.SYSTEM_ERROR, f"the connection is closed: {reason}"))
        self.held.clear()

    close_after_batch = close

    def note_failure(self) -> None:
        """Do nothing: calls are checked before they are requests."""


class LocalServiceManager:
    """ServiceManager of the broker in this process.

    Args:
        broker: the broker.
    """

    is_cluster = False

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._connections: dict[ProxyChannel, LocalConnection] = {}
        self._opaque = itertools.count(1)
        self._tasks = TaskOwner("LocalServiceManager")
        self._batch_ends = False

    async def start(self) -> None:
        """Do nothing: the broker is there."""

    async def stop(self) -> None:
        """Forget all clients and end what they wait for."""
        for channel in list(self._connections):
            self.closed(channel)
        await self._tasks.stop()

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return this broker's queues of a topic.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST.
        """
        config, broker = await self.topic_config(topic), self._broker
        queues = QueueData(broker.broker_name, config.read_queue_nums, config.write_queue_nums, config.perm)
        addresses = {MASTER_ID: broker.address}
        return TopicRouteData(
            queue_datas=[queues], broker_datas=[BrokerData(broker.cluster_name, broker.broker_name, addresses)]
        )

    async def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST.
        """
        config = self._broker.topic_config(topic)
        if config is None:
            remark = f"No topic route info in name server for the topic: {topic}"
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return config

    async def subscription_group_config(self, group: str) -> SubscriptionGroupConfig:
        """Return the settings of a group, which ``autoCreateSubscriptionGroup`` makes.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST.
        """
        config = self._broker.subscription_group_config(group)
        if config is None:
            remark = f"subscription group [{group}] does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return config

    def invoke(self, channel: ProxyChannel, broker_name: str, command: Command) -> Command | Awaitable[Command]:
        """Return the answer of the processor of a request."""
        route = self._broker.routes.get(command.code)
        if broker_name not in {"", self._broker.broker_name}:
            remark = f"this process serves broker {self._broker.broker_name}, not {broker_name}"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        if route is None or route.audience > Audience.CLIENT:
            remark = f"request code {command.code} is not for clients of the gRPC port"
            return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return self._process(route, self._connection(channel), command)

    def _process(self, route: Route, connection: LocalConnection, command: Command) -> Command | Awaitable[Command]:
        loop = asyncio.get_running_loop()
        command.opaque = next(self._opaque)
        command.received_at = connection.last_read = loop.time()
        try:
            answer = route.process(connection, command)
        except Exception as error:  # noqa: BLE001 - logged and answered
            return error_answer(command.code, error)
        if not self._batch_ends:
            self._batch_ends = True
            loop.call_soon(self._end_batch)
        if answer is HELD:
            held: asyncio.Future[Command] = loop.create_future()
            connection.held[command.opaque] = held
            return held
        work = answer.work if isinstance(answer, InTurn) else answer
        return _awaited(command.code, work) if isinstance(work, Awaitable) else _answer_of(work)

    def drop(self, channel: ProxyChannel, command: Command) -> None:
        """Forget a held request; it is answered as a poll that timed out."""
        connection = self._connections.get(channel)
        held = connection.held.pop(command.opaque, None) if connection is not None else None
        if connection is not None and held is not None:
            self._broker.drop_held(connection, command)
            held.set_result(response(ResponseCode.POLLING_TIMEOUT))

    def _end_batch(self) -> None:
        self._batch_ends = False
        self._broker.end_batch()

    def _connection(self, channel: ProxyChannel) -> LocalConnection:
        found = self._connections.get(channel)
        if found is None or not found.is_open:
            found = self._connections[channel] = LocalConnection(channel, self._tasks)
        return found

    def closed(self, channel: ProxyChannel) -> None:
        """Forget a client that is gone."""
        connection = self._connections.pop(channel, None)
        if connection is not None:
            connection.close("the client is gone")
            self._broker.connection_closed(connection)


async def _awaited(code: int, work: Awaitable[Any]) -> Command:
    try:
        return _answer_of(await work)
    except Exception as error:  # noqa: BLE001 - logged and answered
        return error_answer(code, error)


def _answer_of(answer: Any) -> Command:
    """Return an answer as a command; that of a send comes as a frame."""
    if isinstance(answer, RemotingCommand):
        answer.flag |= FLAG_RESPONSE
        return answer
    frame = b"".join(answer) if isinstance(answer, list) else answer
    command = decode_frame(memoryview(frame)[LENGTH.size :])
    command.body = bytes(command.body)
    return command
