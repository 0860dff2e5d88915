"""Which brokers there are, in which clusters, and which live (brokerAddrTable, clusterAddrTable, brokerLiveTable)."""

import logging
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.handler import Connection

log = logging.getLogger(__name__)

MASTER_ID = 0

# (cluster name, broker address), as BrokerAddrInfo
BrokerAddrInfo = tuple[str, str]


@dataclass(slots=True)
class BrokerLiveInfo:
    """One registered broker process; times in seconds of the monotonic clock."""

    last_update: float
    heartbeat_timeout_s: float
    data_version: DataVersion
    connection: Connection
    ha_server_addr: str
    filter_servers: list[str] = field(default_factory=list)

    def expired(self, now: float) -> bool:
        """Whether it was silent for too long."""
        return self.last_update + self.heartbeat_timeout_s < now


class BrokerTable:
    """Brokers by name, their names by cluster, their processes by address."""

    def __init__(self) -> None:
        self.by_name: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[BrokerAddrInfo, BrokerLiveInfo] = {}

    def group(self, cluster_name: str, broker_name: str) -> BrokerData:
        """The brokers of a name (one master and its slaves); made when there were none."""
        self.clusters.setdefault(cluster_name, set()).add(broker_name)
        data = self.by_name.get(broker_name)
        if data is None:
            data = BrokerData(cluster=cluster_name, broker_name=broker_name, broker_addrs={})
            self.by_name[broker_name] = data
        return data

    def find(self, cluster_name: str, broker_addr: str) -> tuple[str, int] | None:
        """Name and id of the broker at an address."""
        for name, data in self.by_name.items():
            if data.cluster == cluster_name:
                for broker_id, address in data.broker_addrs.items():
                    if address == broker_addr:
                        return name, broker_id
        return None

    def drop_group(self, broker_name: str) -> None:
        """Forget a name whose last broker is gone, and each cluster where it was the last."""
        self.by_name.pop(broker_name, None)
        for cluster, names in list(self.clusters.items()):
            names.discard(broker_name)
            if not names:
                del self.clusters[cluster]
        log.info("broker %s is gone", broker_name)

    def has_master(self, broker_name: str) -> bool:
        """Whether the smallest id of a name is the master's."""
        data = self.by_name.get(broker_name)
        return data is not None and bool(data.broker_addrs) and min(data.broker_addrs) <= MASTER_ID
