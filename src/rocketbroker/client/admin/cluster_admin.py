"""Clusters, brokers and their addresses, as name servers know them."""

from rocketbroker.client.admin.admin_connection import AdminConnection, addresses_of
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientError
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable, TopicList
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo
from rocketbroker.codec.remoting.request_code import RequestCode


class ClusterAdmin(AdminConnection):
    """Calls about clusters and their brokers."""

    async def examine_broker_cluster_info(self) -> ClusterInfo:
        """Return the clusters, brokers and their addresses."""
        return ClusterInfo.decode((await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def fetch_all_topic_list(self) -> list[str]:
        """Return the names of all topics."""
        answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return TopicList.decode(answer.body).topic_list

    async def fetch_master_addresses(self, cluster: str) -> dict[str, str]:
        """Return the addresses of a cluster's masters by broker name, and note brokers in ``without_master``.

        Raises:
            ClientError: unknown cluster; the text names the known ones. No broker of the cluster has a master.
        """
        info = await self.examine_broker_cluster_info()
        names = brokers_of(info, cluster)
        brokers = {name: info.broker_addr_table[name] for name in names if name in info.broker_addr_table}
        masters = {
            name: data.broker_addrs[MASTER_ID] for name, data in brokers.items() if MASTER_ID in data.broker_addrs
        }
        if not masters:
            slaves_only = ", ".join(brokers) or "none"
            raise ClientError(f"cluster {cluster!r} has no master; brokers with slaves only: {slaves_only}")
        self.without_master |= brokers.keys() - masters.keys()
        return masters

    async def fetch_broker_addresses(self, cluster: str | None = None) -> list[str]:
        """Return the addresses of all brokers of a cluster, slaves too, or of all clusters.

        Raises:
            ClientError: unknown cluster; the text names the known ones.
        """
        info = await self.examine_broker_cluster_info()
        clusters = info.cluster_addr_table if cluster is None else [cluster]
        brokers = sorted({name for each in clusters for name in brokers_of(info, each)})
        found = [info.broker_addr_table[name] for name in brokers if name in info.broker_addr_table]
        return [data.broker_addrs[number] for data in found for number in sorted(data.broker_addrs)]

    async def fetch_master_and_slave_addresses(self, cluster: str) -> dict[str | None, list[str]]:
        """Return the addresses of a cluster's slaves by that of their master, None for slaves without a master.

        RocketMQ's CommandUtil.fetchMasterAndSlaveDistinguish.

        Raises:
            ClientError: unknown cluster; the text names the known ones.
        """
        info = await self.examine_broker_cluster_info()
        found: dict[str | None, list[str]] = {}
        for name in brokers_of(info, cluster):
            addresses = info.broker_addr_table[name].broker_addrs if name in info.broker_addr_table else {}
            slaves = [address for broker_id, address in sorted(addresses.items()) if broker_id != MASTER_ID]
            if addresses:
                found.setdefault(addresses.get(MASTER_ID), []).extend(slaves)
        return found

    async def get_topic_cluster_list(self, topic: str) -> list[str]:
        """Return the clusters that have a topic (DefaultMQAdminExt.getTopicClusterList), sorted.

        RocketMQ's looks at the first broker of the route only; a topic can be in several clusters.
        """
        info = await self.examine_broker_cluster_info()
        brokers = {data.broker_name for data in (await self.examine_topic_route_info(topic)).broker_datas}
        return sorted(cluster for cluster, names in info.cluster_addr_table.items() if brokers & set(names))

    async def fetch_broker_name(self, address: str) -> str:
        """Return the name of the broker with that address; BrokerNotFoundError when the name server knows none."""
        names = await self.broker_names_at(address)
        if not names:
            raise BrokerNotFoundError(f"no registered broker has the address {address}")
        return min(names)

    async def broker_names_at(self, address: str) -> set[str]:
        """Return the names of the brokers with that address: one, or none when it is not registered."""
        info = await self.examine_broker_cluster_info()
        return {name for name, data in info.broker_addr_table.items() if address in data.broker_addrs.values()}

    async def fetch_broker_address(self, broker: str) -> str:
        """Return the address of a broker's master by its name; an address is returned as it is.

        Raises:
            BrokerNotFoundError: no registered broker has the name; the text names the known ones.
        """
        if ":" in broker:
            return broker
        return addresses_of([await self.fetch_broker_data(broker)])[0]

    async def fetch_broker_data(self, broker: str) -> BrokerData:
        """Return the addresses of a broker by its name.

        Raises:
            BrokerNotFoundError: no registered broker has the name; the text names the known ones.
        """
        table = (await self.examine_broker_cluster_info()).broker_addr_table
        if broker in table:
            return table[broker]
        names = ", ".join(sorted(table)) or "none"
        raise BrokerNotFoundError(f"no registered broker is named {broker!r}; there are {names}")

    async def fetch_broker_runtime_stats(self, address: str) -> dict[str, str]:
        """Return the runtime statistics of a broker, all values as text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table


def brokers_of(info: ClusterInfo, cluster: str) -> list[str]:
    """Return the names of a cluster's brokers, sorted.

    Raises:
        ClientError: unknown cluster; the text names the known ones.
    """
    if cluster in info.cluster_addr_table:
        return sorted(info.cluster_addr_table[cluster])
    known = ", ".join(sorted(info.cluster_addr_table)) or "none"
    raise ClientError(f"cluster {cluster!r} does not exist; the name server knows: {known}")
