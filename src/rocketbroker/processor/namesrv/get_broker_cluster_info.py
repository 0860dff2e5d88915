"""GET_BROKER_CLUSTER_INFO (106): all brokers by name, and the names by cluster."""

from rocketbroker.codec.remoting.bodies.route import ClusterInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.namesrv.broker_table import BrokerTable


class GetBrokerClusterInfoProcessor:
    """Answers the whole table."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer the request."""
        clusters = {cluster: sorted(names) for cluster, names in self._brokers.clusters.items()}
        info = ClusterInfo(broker_addr_table=self._brokers.by_name, cluster_addr_table=clusters)
        return response(body=info.encode())
