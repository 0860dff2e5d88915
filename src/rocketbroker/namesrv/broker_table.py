"""Brokers: their registrations, their liveness and the check of a silent one (brokerAddrTable, brokerLiveTable)."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE, TopicConfig, TopicQueueMappingInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError, shown
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.names import is_registered_topic

# Registration of a broker (REGISTER_BROKER) in the terms of the route tables.
#
# Built on the thread that decoded the body, so that the event loop only swaps tables.

log = logging.getLogger(__name__)

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Header of a registration.

    ``enable_acting_master`` is ``None`` for brokers without the field. ``heartbeat_timeout_ms`` is ``None`` for
    the default of 120 s.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    heartbeat_timeout_ms: int | None
    enable_acting_master: bool | None


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration of all topics of a broker, or of some.

    ``topics_sent`` and ``static_topics_sent`` also count topics without a route: those with an invalid name, and static
    topics that a partial registration names but no table has. ``digest`` is one of the body, empty for a short one.
    """

    broker: BrokerIdentity
    connection: Connection
    data_version: DataVersion
    queues: dict[str, QueueData]
    mappings: dict[str, TopicQueueMappingInfo]
    filter_servers: list[str]
    topics_sent: int
    static_topics_sent: int
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """Addresses of the master for a slave; both ``None`` for a master, or without one."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


def registration_of(broker: BrokerIdentity, body: RegisterBrokerBody, connection: Connection) -> BrokerRegistration:
    """Build a registration from a decoded body; log topics with invalid names."""
    wrapper = body.topic_config_serialize_wrapper
    writable = broker.broker_id == MASTER_ID or not broker.enable_acting_master
    configs = _allowed(broker, wrapper.topic_config_table.values())
    # Names and data are shared with those of other brokers and topics: 1,000 brokers have a million of them.
    queues = {intern(config.topic_name): _queue_data(broker.broker_name, config, writable) for config in configs}
    infos = wrapper.topic_queue_mapping_info_map
    return BrokerRegistration(
        broker,
        connection,
        wrapper.data_version,
        queues,
        {topic: infos[topic] for topic in infos.keys() & queues.keys()},
        body.filter_server_list,
        len(wrapper.topic_config_table),
        len(infos),
    )


def _allowed(broker: BrokerIdentity, topics: Iterable[TopicConfig]) -> list[TopicConfig]:
    good: list[TopicConfig] = []
    bad: list[str] = []
    for config in topics:
        if is_registered_topic(config.topic_name, broker.broker_name, broker.cluster_name):
            good.append(config)
        else:
            bad.append(config.topic_name)
    if bad:
        text = (
            "broker %s at %s registers %d topics with invalid names (^[%%|a-zA-Z0-9_-]+$) or too long ones; no route "
            "for %s"
        )
        named = ", ".join(f"'{shown(name)}'" for name in bad[:_MOST_NAMED])
        log.warning(text, shown(broker.broker_name), shown(broker.broker_addr), len(bad), named)
    return good


def _queue_data(broker_name: str, config: TopicConfig, writable: bool) -> QueueData:
    perm = config.perm if writable else config.perm & ~PERM_WRITE
    return _shared(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


_shared = lru_cache(maxsize=65_536)(QueueData)

_PORT_BYTES = 4


@dataclass(slots=True)
class BrokerLiveInfo:
    """Registered broker process, with its last registration; times in seconds of the monotonic clock."""

    cluster_name: str
    broker_name: str
    broker_id: int
    last_update: float
    heartbeat_timeout_s: float
    data_version: DataVersion
    connection: Connection
    ha_server_addr: str
    filter_servers: list[str] = field(default_factory=list)
    registration: BrokerRegistration | None = None

    def expired(self, now: float) -> bool:
        """Return true if the broker has been silent for too long."""
        return self.last_update + self.heartbeat_timeout_s < now

    def is_gone(self, now: float) -> bool:
        """Return true if its place is free: the connection is closed, or the broker has been silent for too long."""
        return not self.connection.is_open or self.expired(now)

    def is_on_host_of(self, connection: Connection) -> bool:
        """Return true if a connection comes from the host that the broker registered from."""
        return self.connection.remote_host[:-_PORT_BYTES] == connection.remote_host[:-_PORT_BYTES]


class BrokerTable:
    """Brokers by name, and broker processes by address; each address belongs to one name and id."""

    def __init__(self) -> None:
        self.by_name: dict[str, BrokerData] = {}
        self.live: dict[str, BrokerLiveInfo] = {}

    @property
    def clusters(self) -> dict[str, set[str]]:
        """Names of brokers by cluster."""
        clusters: dict[str, set[str]] = {}
        for info in self.live.values():
            clusters.setdefault(info.cluster_name, set()).add(info.broker_name)
        return clusters

    def enter(self, address: str, info: BrokerLiveInfo) -> tuple[BrokerData, bool]:
        """Put a broker under its name and id only; return its group and whether the group changed."""
        group = self.by_name.get(info.broker_name)
        if group is None:
            group = BrokerData(cluster=info.cluster_name, broker_name=info.broker_name, broker_addrs={})
            self.by_name[info.broker_name] = group
        addresses = {held_id: held for held_id, held in group.broker_addrs.items() if held != address}
        former = addresses.pop(info.broker_id, None)
        if former is not None:
            log.info("broker %s:%d has moved to %s from %s", info.broker_name, info.broker_id, address, former)
            del self.live[former]
        # RocketMQ lists brokers by id, the master first.
        addresses = dict(sorted([*addresses.items(), (info.broker_id, address)]))
        changed = addresses != group.broker_addrs
        group.broker_addrs = addresses
        self.live[address] = info
        return group, changed

    def remove(self, address: str) -> tuple[BrokerData, int] | None:
        """Remove an address; return its group and its id in the group."""
        info = self.live.pop(address, None)
        if info is None:
            return None
        group = self.by_name[info.broker_name]
        del group.broker_addrs[info.broker_id]
        if not group.broker_addrs:
            del self.by_name[info.broker_name]
            log.info("broker %s is gone", info.broker_name)
        return group, info.broker_id

    def live_info(self, cluster_name: str, broker_addr: str) -> BrokerLiveInfo | None:
        """Return the state of a live broker of a cluster."""
        info = self.live.get(broker_addr)
        return info if info is not None and info.cluster_name == cluster_name else None

    def addresses(self, cluster_name: str, broker_name: str) -> dict[int, str]:
        """Return the addresses of the live brokers with a name in a cluster, by id."""
        group = self.by_name.get(broker_name)
        held = {} if group is None else group.broker_addrs
        return {key: address for key, address in held.items() if self.live_info(cluster_name, address) is not None}

    def holder(self, broker_name: str, broker_id: int) -> tuple[str, BrokerLiveInfo] | None:
        """Return address and state of the broker with a name and id."""
        group = self.by_name.get(broker_name)
        address = None if group is None else group.broker_addrs.get(broker_id)
        return None if address is None else (address, self.live[address])

    def has_master(self, broker_name: str) -> bool:
        """Return true if the smallest id of a name is the master's."""
        data = self.by_name.get(broker_name)
        return data is not None and min(data.broker_addrs) <= MASTER_ID


# Liveness check of a broker whose place another one claims.
#
# A host that lost power or its network closes no connection. Its brokers would hold their places for 120 s, while the
# brokers that replace them are rejected.

PROBE_TIMEOUT_S = 3.0


class HolderProbe:
    """Ping brokers over the connections they registered by; close the connection of a broker that does not answer.

    Brokers answer every request, if only with REQUEST_CODE_NOT_SUPPORTED.

    Args:
        tasks: owner of the pings, one at a time for a connection.
        timeout_s: limit for the answer.
    """

    def __init__(self, tasks: TaskOwner, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._asked: dict[Connection, asyncio.Task[None]] = {}

    def ask(self, broker_addr: str, connection: Connection) -> None:
        """Ping a broker unless a ping is running."""
        if connection not in self._asked:
            self._asked[connection] = self._tasks.start(self._ask(broker_addr, connection), "holderProbe")

    async def _ask(self, broker_addr: str, connection: Connection) -> None:
        try:
            await connection.invoke(request(RequestCode.HEART_BEAT), self._timeout_s)
        except RemotingTimeoutError:
            what = f"the broker at {shown(broker_addr)} did not answer within {self._timeout_s:g} s"
            text = f"{what}, and another broker claims its place"
            log.warning("%s", text)
            connection.close(text)
        except RemotingSendError as error:
            log.info("the broker at %s could not be checked for liveness: %s", shown(broker_addr), shown(str(error)))
        finally:
            del self._asked[connection]
