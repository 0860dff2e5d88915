"""Brokers, their clusters and their liveness (brokerAddrTable, clusterAddrTable, brokerLiveTable)."""

import logging
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.namesrv.broker_registration import BrokerRegistration

log = logging.getLogger(__name__)

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

    def holder(self, broker_name: str, broker_id: int) -> tuple[str, BrokerLiveInfo] | None:
        """Return address and state of the broker with a name and id."""
        group = self.by_name.get(broker_name)
        address = None if group is None else group.broker_addrs.get(broker_id)
        return None if address is None else (address, self.live[address])

    def has_master(self, broker_name: str) -> bool:
        """Return true if the smallest id of a name is the master's."""
        data = self.by_name.get(broker_name)
        return data is not None and min(data.broker_addrs) <= MASTER_ID
