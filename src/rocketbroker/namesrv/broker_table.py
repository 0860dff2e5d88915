"""Which brokers there are, in which clusters, and which live (brokerAddrTable, clusterAddrTable, brokerLiveTable)."""

import logging
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.handler import Connection

log = logging.getLogger(__name__)

MASTER_ID = 0


@dataclass(slots=True)
class BrokerLiveInfo:
    """One registered broker process; times in seconds of the monotonic clock."""

    cluster_name: str
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
        self.live: dict[str, BrokerLiveInfo] = {}

    def group(self, cluster_name: str, broker_name: str) -> BrokerData:
        """The brokers of a name (one master and its slaves); made when there were none."""
        self.clusters.setdefault(cluster_name, set()).add(broker_name)
        data = self.by_name.get(broker_name)
        if data is None:
            data = BrokerData(cluster=cluster_name, broker_name=broker_name, broker_addrs={})
            self.by_name[broker_name] = data
        return data

    def find(self, broker_addr: str) -> tuple[BrokerData, int] | None:
        """The brokers among which an address is, and its id there."""
        for data in self.by_name.values():
            for broker_id, address in data.broker_addrs.items():
                if address == broker_addr:
                    return data, broker_id
        return None

    def live_info(self, cluster_name: str, broker_addr: str) -> BrokerLiveInfo | None:
        """What is known of a live broker, if it is of that cluster."""
        info = self.live.get(broker_addr)
        return info if info is not None and info.cluster_name == cluster_name else None

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
