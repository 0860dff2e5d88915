"""Figures of ``mqadmin top``, asked from name servers and brokers by requests that RocketMQ's servers answer too.

Brokers are asked at each look. Groups and topics are asked in turn, a limited number at each look, so that a cluster
with thousands of them is not loaded by those who watch it: their figures are then some looks old.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from rocketbroker.app.mqadmin.group_names import GroupNames
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.client.core.requests import version_desc
from rocketbroker.codec.message.topic_validator import (
    REPLY_TOPIC_POSTFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RocketBrokerError

#: Groups, and topics, that are asked at each look.
AT_A_LOOK = 100
#: Seconds over which rates are taken.
WINDOW_S = 10.0
_AT_A_TIME = 8
_BROKER_COUNTS = ("msgPutTotalTodayNow", "msgGetTotalTodayNow")

T = TypeVar("T")


class BrokerFigures(msgspec.Struct, rename="camel"):
    """One broker process.

    Attributes:
        cluster: its cluster.
        broker: its name.
        broker_id: 0 for a master.
        addr: ``host:port``.
        version: version that it reports.
        in_rate: messages stored a second.
        out_rate: messages delivered a second.
        disk: used share of the disk of its CommitLog, None if it does not report it.
        problem: reason why it does not answer, or why a slave does not follow its master; empty if all is well.
        runtime: everything that it reports, as text.
    """

    cluster: str
    broker: str
    broker_id: int
    addr: str
    version: str = ""
    in_rate: float = 0.0
    out_rate: float = 0.0
    disk: float | None = None
    problem: str = ""
    runtime: dict[str, str] = {}


class QueueFigures(msgspec.Struct, rename="camel"):
    """One queue of a topic, as a group sees it; ``consumed`` and ``lag`` are None where no group is asked for."""

    topic: str
    broker: str
    queue_id: int
    first: int
    end: int
    consumed: int | None = None
    lag: int | None = None


class ClientFigures(msgspec.Struct, rename="camel"):
    """One client of a group."""

    client_id: str
    addr: str
    language: str
    version: str


class GroupFigures(msgspec.Struct, rename="camel"):
    """One consumer group.

    Attributes:
        group: its name.
        lag: messages that it has not consumed.
        out_rate: messages consumed a second.
        clients: its clients; empty if none is online.
        queues: its queues, those of its retry topic included.
        problem: reason why a broker did not tell, empty if all is well.
    """

    group: str
    lag: int = 0
    out_rate: float = 0.0
    clients: list[ClientFigures] = []
    queues: list[QueueFigures] = []
    problem: str = ""


class TopicFigures(msgspec.Struct, rename="camel"):
    """One topic: messages that it holds, and messages stored a second."""

    topic: str
    messages: int = 0
    in_rate: float = 0.0
    queues: list[QueueFigures] = []
    problem: str = ""


class Snapshot(msgspec.Struct, rename="camel"):
    """Figures of one look; ``time`` in ms since 1970.

    ``groupsAsked`` and ``topicsAsked`` are those whose figures are of this look; the others' are older.
    """

    time: int
    brokers: list[BrokerFigures]
    groups: list[GroupFigures]
    topics: list[TopicFigures]
    groups_asked: int = 0
    topics_asked: int = 0


class Rates:
    """Rates of counters over the last ``WINDOW_S``: consumers commit their offsets every few seconds only.

    Args:
        monotonic: clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[Any, deque[tuple[float, float]]] = {}

    def keep(self, keys: set[Any]) -> None:
        """Forget all other counters."""
        for gone in self._seen.keys() - keys:
            del self._seen[gone]

    def of(self, key: Any, count: float, reported: float = 0.0) -> float:
        """Return the rate of a counter, 0 after it went back.

        Args:
            key: name of the counter.
            count: its value now.
            reported: rate that is returned for the first value.
        """
        now = self._monotonic()
        seen = self._seen.setdefault(key, deque())
        if seen and count < seen[-1][1]:
            seen.clear()
            reported = 0.0
        seen.append((now, count))
        while len(seen) > 2 and seen[1][0] <= now - WINDOW_S:
            seen.popleft()
        since, first = seen[0]
        return (count - first) / (now - since) if now > since else reported


class Collector:
    """Looks at a cluster repeatedly.

    Args:
        admin: client of the name servers.
        time_ms: wall clock.
        monotonic: clock of rates, in seconds.
        cluster: cluster whose brokers to ask; None for all.
        at_a_look: groups, and topics, that are asked at each look.
    """

    def __init__(
        self,
        admin: AdminClient,
        time_ms: Callable[[], int],
        monotonic: Callable[[], float],
        cluster: str | None = None,
        at_a_look: int = AT_A_LOOK,
    ) -> None:
        self._admin = admin
        self._group_names = GroupNames(admin, monotonic)
        self._time_ms = time_ms
        self._rates = Rates(monotonic)
        self._cluster = cluster
        self._at_a_look = at_a_look
        self._groups: dict[str, GroupFigures] = {}
        self._topics: dict[str, TopicFigures] = {}

    async def look(self) -> Snapshot:
        """Ask the brokers, and the next groups and topics, and return all figures.

        Raises:
            RocketBrokerError: no name server answers, or the cluster does not exist.
        """
        self._admin.ask_silent_servers_once()
        addresses = await self._admin.fetch_broker_addresses(self._cluster)
        info = await self._admin.examine_broker_cluster_info()
        found = [
            BrokerFigures(data.cluster, name, broker_id, address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
            if address in addresses
        ]
        brokers = await _in_turns(found, self._broker)
        names = await self._topic_names()
        system = {*await self._admin.get_system_topic_list(), *info.broker_addr_table}
        for cluster in info.cluster_addr_table:
            system |= {cluster, cluster + REPLY_TOPIC_POSTFIX}
        groups = set(await self._group_names.of(names))
        topics = {
            name
            for name in names
            if not (name.startswith(RETRY_GROUP_TOPIC_PREFIX) or is_system_topic(name) or name in system)
        }
        groups_asked = await _refresh(self._groups, groups, self._at_a_look, self._group)
        topics_asked = await _refresh(self._topics, topics, self._at_a_look, self._topic)
        counters = {(each.addr, count) for each in found for count in _BROKER_COUNTS}
        self._rates.keep(counters | {("group", name) for name in groups} | {("topic", name) for name in topics})
        return Snapshot(
            self._time_ms(),
            brokers,
            [self._groups[name] for name in sorted(self._groups)],
            [self._topics[name] for name in sorted(self._topics)],
            groups_asked,
            topics_asked,
        )

    async def _topic_names(self) -> Sequence[str]:
        if self._cluster is None:
            return await self._admin.fetch_all_topic_list()
        return await self._admin.get_topics_by_cluster(self._cluster)

    async def _broker(self, figures: BrokerFigures) -> BrokerFigures:
        try:
            runtime = await self._admin.fetch_broker_runtime_stats(figures.addr)
        except RocketBrokerError as error:
            figures.problem = str(error)
            return figures
        figures.runtime = runtime
        figures.version = runtime.get("brokerVersionDesc", "")
        figures.disk = number_in(runtime, "commitLogDiskRatio")
        figures.problem = runtime.get("replicationProblem", "")
        figures.in_rate = self._broker_rate(figures, "msgPutTotalTodayNow", "putTps")
        figures.out_rate = self._broker_rate(figures, "msgGetTotalTodayNow", "getTransferredTps")
        return figures

    def _broker_rate(self, figures: BrokerFigures, count: str, rate: str) -> float:
        """Return the rate of a counter of a broker; the first time that over the last 10 s, which it reports."""
        reported = number_in(figures.runtime, rate) or 0.0
        value = number_in(figures.runtime, count)
        return reported if value is None else self._rates.of((figures.addr, count), value, reported)

    async def _group(self, name: str) -> GroupFigures:
        figures = GroupFigures(name)
        try:
            stats = await self._admin.examine_consume_stats(name)
            figures.clients = await self._clients(name)
        except TopicRouteError:
            return figures  # deleted since the list was fetched
        except RocketBrokerError as error:
            # The figures before are better than none: a broker that is away does not empty the screen.
            return msgspec.structs.replace(self._groups.get(name, figures), problem=str(error))
        figures.queues = [
            QueueFigures(
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                0,
                offsets.broker_offset,
                offsets.consumer_offset,
                max(offsets.broker_offset - offsets.consumer_offset, 0),
            )
            for queue, offsets in sorted(stats.offset_table.items())
        ]
        figures.lag = sum(queue.lag or 0 for queue in figures.queues)
        consumed = sum(queue.consumed or 0 for queue in figures.queues)
        figures.out_rate = self._rates.of(("group", name), consumed, stats.consume_tps)
        return figures

    async def _clients(self, group: str) -> list[ClientFigures]:
        try:
            connections = await self._admin.examine_consumer_connection_info(group)
        except BrokerResponseError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return []
            raise
        return [
            ClientFigures(each.client_id, each.client_addr, each.language, version_desc(each.version))
            for each in sorted(connections.connection_set, key=lambda each: each.client_id)
        ]

    async def _topic(self, name: str) -> TopicFigures:
        figures = TopicFigures(name)
        try:
            stats = await self._admin.examine_topic_stats(name)
        except TopicRouteError:
            return figures
        except RocketBrokerError as error:
            return msgspec.structs.replace(self._topics.get(name, figures), problem=str(error))
        figures.queues = [
            QueueFigures(name, queue.broker_name, queue.queue_id, offsets.min_offset, offsets.max_offset)
            for queue, offsets in sorted(stats.offset_table.items())
        ]
        figures.messages = sum(queue.end - queue.first for queue in figures.queues)
        end = sum(queue.end for queue in figures.queues)
        figures.in_rate = self._rates.of(("topic", name), end, stats.topic_put_tps)
        return figures


async def _refresh(known: dict[str, T], names: set[str], most: int, ask: Callable[[str], Awaitable[T]]) -> int:
    """Ask for the names that are new or were asked longest ago; return their number.

    Args:
        known: figures by name, the oldest first; names that are gone leave it.
        names: all names now.
        most: most names to ask.
        ask: asks for one.
    """
    for gone in known.keys() - names:
        del known[gone]
    due = [*sorted(names - known.keys()), *known][:most]
    for name, figures in zip(due, await _in_turns(due, ask), strict=True):
        known.pop(name, None)
        known[name] = figures
    return len(due)


async def _in_turns(items: Sequence[Any], ask: Callable[[Any], Awaitable[T]]) -> list[T]:
    """Ask for each item, a few at a time, and return the answers in order."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: Any) -> T:
        async with turns:
            return await ask(item)

    return list(await asyncio.gather(*map(one, items)))


def number_in(runtime: dict[str, str], name: str) -> float | None:
    """Return the first number of a value, or None if it is missing or not a number."""
    try:
        return float(runtime.get(name, "").split()[0])
    except (ValueError, IndexError):
        return None
