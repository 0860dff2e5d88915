"""GET_BROKER_CLUSTER_INFO (106): all brokers by name, and the names by cluster."""

from rocketbroker.codec.remoting.bodies.route import ClusterInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.namesrv.broker_table import BrokerTable
from rocketbroker.namesrv.encoded_answers import EncodedAnswers


class GetBrokerClusterInfoProcessor:
    """Answers the whole table."""

    def __init__(self, brokers: BrokerTable, answers: EncodedAnswers) -> None:
        self._brokers = brokers
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer the request."""
        return response(body=self._answers.list("cluster info", self._encoded))

    def _encoded(self) -> bytes:
        clusters = {cluster: sorted(names) for cluster, names in self._brokers.clusters.items()}
        return ClusterInfo(broker_addr_table=self._brokers.by_name, cluster_addr_table=clusters).encode()
