"""GET_SYSTEM_TOPIC_LIST_FROM_NS (304): the topics named after clusters and brokers, and one broker to ask for more."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.namesrv.broker_table import BrokerTable


class GetSystemTopicListFromNsProcessor:
    """Answers names of clusters and brokers."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer the request."""
        names = dict.fromkeys(self._brokers.clusters)
        for brokers in self._brokers.clusters.values():
            names.update(dict.fromkeys(sorted(brokers)))
        addresses = (address for data in self._brokers.by_name.values() for address in data.broker_addrs.values())
        return response(body=TopicList(topic_list=list(names), broker_addr=next(addresses, None)).encode())
