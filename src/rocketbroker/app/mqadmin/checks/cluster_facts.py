"""Facts of a cluster for ``mqadmin doctor``: what name servers, brokers and clients say, fetched once."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TypeVar

import msgspec
import typer

from rocketbroker.app.mqadmin.group_names import doubtful_groups
from rocketbroker.app.mqadmin.many import of_many
from rocketbroker.app.mqadmin.named_clusters import EXPECTED_BROKERS
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX, groups_with_retry_topics
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo, OffsetWrapper
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError, RemotingConnectError, RocketBrokerError

T = TypeVar("T")
# Requests that wait at a time: a cluster of 10,000 topics is asked without a burst.
_AT_ONCE = 16
# Requests to a broker for the progress of groups. One of thousands of queues takes half a second for each, and works at
# all of them alike: more would end in the time limit together.
_PROGRESS_AT_ONCE = 4


class NameServerFacts(msgspec.Struct):
    """One name server: its clusters and topics, or the error that kept it from answering."""

    address: str
    clusters: ClusterInfo = msgspec.field(default_factory=ClusterInfo)
    topics: set[str] = msgspec.field(default_factory=set)
    error: str = ""


class BrokerFacts(msgspec.Struct):
    """One broker as registered, and its own statements.

    Attributes:
        groups: consumer groups that users made, or their clients; None if it does not tell them.
        skew_ms: by how much its clock is ahead of this machine's, as far as its uptime tells; None if it does not.
        error: reason why it does not answer.
        accepts: it does not answer, though a connection was made.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = {}
    settings: dict[str, str] = {}
    replication: HARuntimeInfo | None = None
    topics: dict[str, TopicConfig] = {}
    skew_ms: int | None = None
    error: str = ""
    groups: set[str] | None = None
    accepts: bool = False

    @property
    def label(self) -> str:
        """Name of a master, or name and id of a slave."""
        return self.name if self.broker_id == MASTER_ID else f"{self.name} (slave {self.broker_id})"


class GroupFacts(msgspec.Struct):
    """One consumer group: its clients, their statements, and its progress in each queue."""

    name: str
    clients: ConsumerConnection | None = None
    conflict: str = ""
    running: dict[str, ConsumerRunningInfo] = {}
    progress: dict[MessageQueue, OffsetWrapper] = {}


class CertificateFacts(msgspec.Struct):
    """Certificate that a server shows.

    Attributes:
        subject: the server, such as ``broker broker-a``.
        host: name or address under which clients connect to it.
        path: file of the certificate, if it is known.
        days_left: days until it expires.
        names: its names and addresses.
        fits: it is for ``host``.
        refusal: reason why this machine does not trust it; empty if it does, or trusts nobody.
    """

    subject: str
    address: str
    host: str
    path: str = ""
    days_left: float | None = None
    names: list[str] | None = None
    fits: bool = True
    refusal: str = ""


class ClusterFacts(msgspec.Struct):
    """All facts.

    Attributes:
        certificates: those of servers that have TLS.
        expected: names of brokers that the file of clusters has for this cluster.
        unknown: a line for each fact that could not be fetched.
    """

    name_servers: list[NameServerFacts] = []
    brokers: list[BrokerFacts] = []
    groups: list[GroupFacts] = []
    routes: dict[str, TopicRouteData] = {}
    unknown: list[str] = []
    expected: tuple[str, ...] = ()
    certificates: list[CertificateFacts] = []

    @property
    def all_name_servers(self) -> str:
        """Addresses of all name servers, as a value of namesrvAddr."""
        return ";".join(each.address for each in self.name_servers)

    @property
    def cluster(self) -> str:
        """Name of the cluster for a command."""
        return self.brokers[0].cluster if self.brokers else "DefaultCluster"


async def collect(admin: AdminClient, group: str | None, topic: str | None) -> ClusterFacts:
    """Ask all servers, and the clients of all groups or of one.

    Args:
        admin: asks the name servers.
        group: ask about this group only.
        topic: ask about this topic, too, even if no name server knows it.

    Raises:
        NameServerError: no name server answers.
        typer.BadParameter: no broker knows the group.
    """
    await admin.examine_broker_cluster_info()
    progress_limits = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, _PROGRESS_AT_ONCE))
    facts = ClusterFacts(expected=EXPECTED_BROKERS.get())
    collector = _Collector(admin, facts, asyncio.Semaphore(_AT_ONCE), progress_limits)
    name_servers = await admin.name_server_addresses()
    facts.name_servers = list(await asyncio.gather(*(_name_server(each, admin.config) for each in name_servers)))
    found = {
        (name, broker_id, address): data.cluster
        for server in facts.name_servers
        for name, data in server.clusters.broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    }
    brokers = [BrokerFacts(cluster, *key) for key, cluster in sorted(found.items())]
    topics = set().union(*(server.topics for server in facts.name_servers))
    facts.brokers = list(await asyncio.gather(*map(collector.broker, brokers)))
    told = [each.groups for each in facts.brokers if each.groups is not None]
    is_silent = len(told) < len(facts.brokers)
    known = set().union(*told)
    retried = set(groups_with_retry_topics(topics)) - known
    # Retry topics of POP look like those of groups; a broker that does not tell its groups may have such a group.
    known |= retried if is_silent else retried - doubtful_groups(retried, topics)
    if group is not None and group not in known and not is_silent:
        near = get_close_matches(group, sorted(known), 1)
        hint = f"; did you mean {near[0]}?" if near else "; mqadmin consumerProgress lists the groups"
        raise typer.BadParameter(f"no broker knows the consumer group {group!r}{hint}", param_hint="-g")
    chosen = [group] if group is not None else sorted(known)
    facts.groups = list(await asyncio.gather(*(collector.group(GroupFacts(name)) for name in chosen)))
    collector.note_dead_brokers()
    wanted = {name for each in facts.groups if each.clients for name in each.clients.subscription_table}
    names = sorted(wanted | ({topic} if topic else set()))
    facts.routes = dict(zip(names, await of_many(names, collector.route), strict=True))
    return facts


async def _name_server(address: str, config: ClientConfig) -> NameServerFacts:
    facts = NameServerFacts(address)
    try:
        async with AdminClient(msgspec.structs.replace(config, namesrv_addr=address)) as admin:
            facts.clusters = await admin.examine_broker_cluster_info()
            facts.topics = set(await admin.fetch_all_topic_list())
    except RocketBrokerError as error:
        facts.error = str(error)
    return facts


@dataclass(frozen=True, slots=True)
class _Collector:
    """Asks brokers and clients, a few at a time, and notes what does not answer."""

    admin: AdminClient
    facts: ClusterFacts
    limit: asyncio.Semaphore
    progress_limits: Mapping[str, asyncio.Semaphore]

    async def ask(self, what: str, request: Awaitable[T]) -> T | None:
        """Return the answer to a request, or None, with a note that it is not known."""
        async with self.limit:
            try:
                return await request
            except RocketBrokerError as error:
                self.facts.unknown.append(f"{what}: {error}")
                return None

    async def broker(self, facts: BrokerFacts) -> BrokerFacts:
        """Add what a broker says."""
        address, clock = facts.address, SystemClock()
        try:
            before = clock.time_ms()
            facts.runtime = await self.admin.fetch_broker_runtime_stats(address)
            facts.skew_ms = skew_of(facts.runtime, (before + clock.time_ms()) // 2)
        except RocketBrokerError as error:
            facts.error, facts.accepts = str(error), not isinstance(error, RemotingConnectError)
            return facts
        label = f"broker {address}"
        facts.settings = await self.ask(f"{label}, settings", self.admin.get_broker_config(address)) or {}
        facts.replication = await self.ask(f"{label}, replication", self.admin.get_broker_ha_status(address))
        facts.topics = await self.ask(f"{label}, topics", self.admin.get_all_topic_config(address)) or {}
        groups = await self.ask(f"{label}, groups", self.admin.get_user_subscription_group(address))
        facts.groups = None if groups is None else set(groups)
        return facts

    def addresses(self, group: str) -> list[str]:
        """Return one address of each broker that answers and has the retry topic of a group, or of all without one."""
        alive = {each.name: each.address for each in reversed(self.facts.brokers) if not each.error}
        retry_topic = RETRY_GROUP_TOPIC_PREFIX + group
        having = {each.name for each in self.facts.brokers if retry_topic in each.topics}
        return [address for name, address in sorted(alive.items()) if not having or name in having]

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic, an empty one if it has none."""
        try:
            return await self.admin.examine_topic_route_info(topic)
        except TopicRouteError:
            return TopicRouteData()

    def note_dead_brokers(self) -> None:
        """Note once for each broker that its part of the progress is not known."""
        alive = {each.name for each in self.facts.brokers if not each.error}
        count = len(self.facts.groups)
        groups = "1 group" if count == 1 else f"{count:,} groups"
        dead = sorted({each.name for each in self.facts.brokers} - alive)
        self.facts.unknown += [f"{groups}: progress at broker {name}, which does not answer" for name in dead if count]

    async def group(self, facts: GroupFacts) -> GroupFacts:
        """Add what brokers and clients say about a group."""
        group = facts.name
        label = f"group {group}"
        addresses = self.addresses(group)
        for address in addresses:
            facts.clients, facts.conflict = await self.ask(label, self._clients(group, address)) or (None, "")
            if facts.clients is None:
                continue
            for client in facts.clients.connection_set:
                request = self.admin.get_consumer_running_info(group, client.client_id, address=address)
                info = await self.ask(f"{label}, client {client.client_id}", request)
                if info is not None:
                    facts.running[client.client_id] = info
            break
        for address in addresses:
            async with self.progress_limits[address]:
                asked = self.admin.examine_consume_stats(group, addresses=[address])
                stats = await self.ask(f"{label}, progress", asked)
            facts.progress |= {} if stats is None else stats.offset_table
        return facts

    async def _clients(self, group: str, address: str) -> tuple[ConsumerConnection | None, str]:
        try:
            return await self.admin.examine_consumers(group, address)
        except BrokerResponseError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None, ""
            raise


def skew_of(runtime: dict[str, str], now_ms: int) -> int | None:
    """Return by how many ms a broker's clock is ahead: it says when it started and for how long it has run.

    Returns:
        The difference, which is exact to 1 s; None if the broker does not report both.
    """
    units = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
    parts = re.findall(r"(-?\d+) (days|hours|minutes|seconds)", runtime.get("runtime", ""))
    started = runtime.get("bootTimestamp", "")
    if not parts or not started.isdigit():
        return None
    return int(started) + sum(int(count) * units[unit] for count, unit in parts) - now_ms
