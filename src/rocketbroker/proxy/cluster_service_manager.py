"""Brokers of a cluster behind the gRPC front, by remoting (ClusterServiceManager of Apache's proxy).

A proxy keeps nothing that a restart loses: routes and settings are cached, and clients register again. Brokers know the
proxy as one producer, with the topics of all its clients as groups, so that they ask it for the outcome of
transactions; they do not know consumers, as pops need no registration. Apache's proxies tell each other of their
consumers through DefaultHeartBeatSyncerTopic; nothing here depends on that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from rocketbroker.client.core.errors import NameServerError, TopicRouteError
from rocketbroker.client.core.name_server_client import NameServerClient
from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, ProducerData
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import Audience, Connection, Route
from rocketbroker.codec.remoting.headers.admin import (
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader
from rocketbroker.codec.remoting.headers.pop import PopMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingConnectError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.call_context import succeeded
from rocketbroker.proxy.service_manager import ProxyChannel
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.tls_transport import OutgoingTls

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_MOST_CACHED: Final = 50_000

V = TypeVar("V")


class _Cache:
    """Values by name that are fetched again when they are old; all who want one wait for the same fetch.

    A missing value is not kept.
    """

    def __init__(self, tasks: TaskOwner, fresh_s: float) -> None:
        self._tasks = tasks
        self._fresh_s = fresh_s
        self._values: dict[object, tuple[float, Any]] = {}
        self._fetches: dict[object, asyncio.Task[Any]] = {}

    async def get(self, key: object, fetch: Callable[[], Awaitable[V]]) -> V:
        """Return the value of a key; raise what ``fetch`` raises if there is none, and keep an old one otherwise."""
        now = asyncio.get_running_loop().time()
        known = self._values.get(key)
        if known is not None and now < known[0] + self._fresh_s:
            found: V = known[1]
            return found
        task = self._fetches.get(key)
        if task is None:
            task = self._fetches[key] = self._tasks.start(self._fetch(key, fetch), f"fetch {key}")
        await asyncio.wait([task])
        value, error = task.result()
        if error is None:
            fetched: V = value
            return fetched
        if known is None or isinstance(error, BrokerResponseError):
            raise error.with_traceback(None)
        kept: V = known[1]
        return kept

    async def _fetch(self, key: object, fetch: Callable[[], Awaitable[V]]) -> tuple[V | None, Exception | None]:
        try:
            value = await fetch()
        except (BrokerResponseError, RemotingError) as error:
            return None, error
        finally:
            del self._fetches[key]
        if len(self._values) >= _MOST_CACHED:
            self._values.clear()
        self._values[key] = asyncio.get_running_loop().time(), value
        return value, None


class ClusterServiceManager:
    """ServiceManager of the brokers that name servers know.

    Args:
        client_id: id by which brokers know this proxy as a producer.
        config: name servers, and times.
        sign: signs its requests; without it, they are not signed.
        bind: returns what signs them instead on a connection whose server gave it this nonce.
    """

    is_cluster = True

    def __init__(
        self,
        client_id: str,
        config: ProxyConfig,
        sign: Callable[[Command], None] | None = None,
        bind: Callable[[str], Callable[[Command], None]] | None = None,
    ) -> None:
        routes = {
            int(RequestCode.CHECK_TRANSACTION_STATE): Route(
                RequestCode.CHECK_TRANSACTION_STATE, self._check, CheckTransactionStateRequestHeader, Audience.CLIENT
            )
        }
        self._tls = OutgoingTls(config)
        self._remoting = RemotingClient(routes, tls=self._tls.outgoing, before_request=sign, bind=bind)
        self._name_servers = NameServerClient(self._remoting, config.namesrv_addr)
        self._client_id = client_id
        self._tasks = TaskOwner("ClusterServiceManager")
        self._heartbeat_s = config.transaction_heartbeat_period_second
        self._routes = _Cache(self._tasks, config.topic_route_service_cache_refresh_seconds)
        self._topics = _Cache(self._tasks, config.topic_config_cache_refresh_seconds)
        self._subscription_groups = _Cache(self._tasks, config.subscription_group_config_cache_refresh_seconds)
        # Addresses of masters by broker name, from all routes.
        self._masters: dict[str, str] = {}
        # Producer groups of each client, which are topics.
        self._groups: dict[ProxyChannel, frozenset[str]] = {}

    async def start(self) -> None:
        """Begin to send heartbeats."""
        self._tasks.every(self._heartbeat_s, self._heartbeat, "heartbeat")
        self._tls.watch(self._tasks)

    async def stop(self) -> None:
        """Close all connections."""
        await self._tasks.stop()
        await self._remoting.stop()

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route that the name servers have.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
            RemotingError: No name server answers.
        """
        return await self._routes.get(topic, lambda: self._fetch_route(topic))

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        try:
            route = await self._name_servers.topic_route(topic)
        except TopicRouteError as error:
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, str(error)) from error
        except NameServerError as error:
            raise RemotingConnectError(str(error)) from error
        self._note_masters(route.broker_datas)
        return route

    async def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic at one of its brokers.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
            RemotingError: The broker cannot be reached.
        """

        async def fetch() -> TopicConfig:
            address = await self._a_master(topic)
            command = request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic))
            return TopicConfig.decode(bytes((await self.asked(address, command)).body))

        return await self._topics.get(topic, fetch)

    async def subscription_group_config(self, group: str) -> SubscriptionGroupConfig:
        """Return the settings of a group at one of the known brokers.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, or another answer.
            RemotingError: No broker is known, or it cannot be reached.
        """

        async def fetch() -> SubscriptionGroupConfig:
            header = GetSubscriptionGroupConfigRequestHeader(group)
            command = request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
            answer = await self.asked(await self._any_master(), command)
            return SubscriptionGroupConfig.decode(bytes(answer.body))

        return await self._subscription_groups.get(group, fetch)

    async def _a_master(self, topic: str) -> str:
        route = await self.topic_route(topic)
        for queue in route.queue_datas:
            if queue.broker_name in self._masters:
                return self._masters[queue.broker_name]
        raise RemotingConnectError(f"no master of topic {topic} is registered; start one, or wait for its registration")

    async def _any_master(self) -> str:
        if not self._masters:
            await self._find_masters()
        if not self._masters:
            raise RemotingConnectError("no broker is registered at the name servers; start one")
        return next(iter(self._masters.values()))

    async def _find_masters(self) -> None:
        self._note_masters(await self.registered())

    async def registered(self) -> Collection[BrokerData]:
        """Return the brokers that the name servers know.

        Raises:
            RemotingConnectError: No name server answers.
        """
        try:
            answer = await succeeded(self._name_servers.invoke(request(RequestCode.GET_BROKER_CLUSTER_INFO)))
        except NameServerError as error:
            raise RemotingConnectError(str(error)) from error
        return ClusterInfo.decode(answer.body).broker_addr_table.values()

    async def find_masters(self) -> int:
        """Ask the name servers for the brokers; return the number of masters.

        Raises:
            RemotingConnectError: No name server answers.
        """
        answered = await self.registered()
        self._note_masters(answered)
        return sum(MASTER_ID in broker.broker_addrs for broker in answered)

    def _note_masters(self, brokers: Iterable[BrokerData]) -> None:
        for broker in brokers:
            if MASTER_ID in broker.broker_addrs:
                self._masters[broker.broker_name] = broker.broker_addrs[MASTER_ID]

    async def asked(self, address: str, command: Command) -> Command:
        """Return a broker's answer.

        Raises:
            BrokerResponseError: It refuses.
            RemotingError: It does not answer.
        """
        return await succeeded(self._remoting.invoke(address, command, _TIMEOUT_S))

    def invoke(self, channel: ProxyChannel, broker_name: str, command: Command) -> Awaitable[Command]:
        """Send a request to the master of a broker, or a registration of a client to all of them."""
        if command.code == RequestCode.HEART_BEAT:
            return self._register(channel, command)
        if command.code == RequestCode.UNREGISTER_CLIENT:
            return self._unregister(channel)
        return self._invoke(broker_name, command)

    async def _invoke(self, broker_name: str, command: Command) -> Command:
        if broker_name not in self._masters:
            await self._find_masters()
        address = self._masters.get(broker_name)
        if address is None:
            raise RemotingConnectError(f"no master of broker {broker_name} is registered")
        timeout_s, header = _TIMEOUT_S, command.header
        if isinstance(header, PopMessageRequestHeader):
            timeout_s += max(header.poll_time, 0) / 1000
        try:
            answer = await self._remoting.invoke(address, command, timeout_s)
        except RemotingConnectError:
            # It may have moved.
            self._masters.pop(broker_name, None)
            raise
        answer.body = bytes(answer.body)
        return answer

    def drop(self, channel: ProxyChannel, command: Command) -> None:
        """Do nothing: brokers cannot forget a request, and answer it when its poll time is over."""

    # -- clients

    async def _register(self, channel: ProxyChannel, command: Command) -> Command:
        """Note the producer groups of a client; tell the brokers if they have one more."""
        data = HeartbeatData.decode(command.body)
        before = self._all_groups()
        self._groups[channel] = frozenset(producer.group_name for producer in data.producer_data_set)
        if self._all_groups() - before:
            await self._heartbeat()
        return response()

    async def _unregister(self, channel: ProxyChannel) -> Command:
        self.closed(channel)
        return response()

    def closed(self, channel: ProxyChannel) -> None:
        """Forget a client; the next heartbeat leaves its groups out."""
        self._groups.pop(channel, None)

    def _all_groups(self) -> set[str]:
        return set().union(*self._groups.values())

    async def _heartbeat(self) -> None:
        """Register this proxy as a producer at the brokers of each group's topic."""
        by_address: dict[str, list[ProducerData]] = {}
        for group in sorted(self._all_groups()):
            try:
                route = await self.topic_route(group)
            except (BrokerResponseError, RemotingError) as error:
                log.warning("transactions of topic %s are not checked: %s", group, error)
                continue
            for broker in route.broker_datas:
                if MASTER_ID in broker.broker_addrs:
                    by_address.setdefault(broker.broker_addrs[MASTER_ID], []).append(ProducerData(group))
        for address, producers in by_address.items():
            body = HeartbeatData(self._client_id, producers, []).encode()
            try:
                await self._remoting.invoke(address, request(RequestCode.HEART_BEAT, body=body), _TIMEOUT_S)
            except RemotingError as error:
                log.warning("broker %s does not know this proxy as a producer: %s", address, error)

    def _check(self, _connection: Connection, command: Command) -> Command:
        """Pass a question for the outcome of a transaction on to a client that sends to the topic."""
        command.body = bytes(command.body)
        group = decode_record(command.body).get_property(PROPERTY_PRODUCER_GROUP) or ""
        for channel, groups in self._groups.items():
            if group in groups and channel.send_oneway(command):
                break
        else:
            log.warning("no client of this proxy sends to %s, and a transaction of it stays open", group)
        return response()
