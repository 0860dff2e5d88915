"""Routes of topics, for clients (pickupTopicRouteData of RouteInfoManager)."""

from typing import Any

from rocketbroker.codec.message.topic_validator import SYNC_BROKER_MEMBER_GROUP_PREFIX
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.broker_table import BrokerTable
from rocketbroker.namesrv.encoded_answers import EncodedAnswers
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable


class TopicRoutes:
    """Routes by topic.

    Args:
        config: read at each use.
        brokers: addresses of brokers.
        topic_queues: queues by broker.
        answers: cache of encoded routes.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        brokers: BrokerTable,
        topic_queues: TopicQueueTable,
        answers: EncodedAnswers,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._topic_queues = topic_queues
        self._answers = answers

    def encoded(self, topic: str, *, standard_json: bool, order_topic_conf: str | None = None) -> bytes | None:
        """Return the encoded route, or ``None`` for an unknown topic; ``standard_json`` quotes the broker ids."""

        def make() -> bytes | None:
            route = self.pickup(topic)
            if route is None:
                return None
            route.order_topic_conf = order_topic_conf
            return route.encode_standard() if standard_json else route.encode()

        return self._answers.route(topic, (standard_json, order_topic_conf), make)

    def pickup(self, topic: str) -> TopicRouteData | None:
        """Return the route, or ``None`` if no broker has the topic."""
        queues = self._topic_queues.queues(topic)
        brokers = [self._brokers.by_name[name] for name in queues if name in self._brokers.by_name]
        if not brokers:
            return None
        acting = self._config.support_acting_master and not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX)
        return TopicRouteData(
            broker_datas=[_acting_as_master(data, queues) if acting else data for data in brokers],
            queue_datas=list(queues.values()),
            filter_server_table=self._filter_servers(brokers),
            topic_queue_mapping_by_broker=self._mappings(topic),
        )

    def _mappings(self, topic: str) -> dict[str, dict[str, Any]] | None:
        found = {name: info.as_fields() for name, info in self._topic_queues.mappings(topic).items()}
        return found or None

    def _filter_servers(self, brokers: list[BrokerData]) -> dict[str, list[str]]:
        live = self._brokers.live
        addresses = (address for data in brokers for address in data.broker_addrs.values())
        known = ((address, live[address].filter_servers) for address in addresses if address in live)
        return {address: servers for address, servers in known if servers}


def _acting_as_master(data: BrokerData, queues: dict[str, QueueData]) -> BrokerData:
    """Return the broker as clients see it: without a master, the slave with the smallest id acts as one, read-only."""
    addresses = data.broker_addrs
    may = data.enable_acting_master and addresses and MASTER_ID not in addresses
    if not may or queues[data.broker_name].perm & PERM_WRITE:
        return data
    smallest = min(addresses)
    seen = {MASTER_ID: addresses[smallest]}
    seen.update((broker_id, address) for broker_id, address in addresses.items() if broker_id != smallest)
    return BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        broker_addrs=seen,
        zone_name=data.zone_name,
        enable_acting_master=data.enable_acting_master,
    )
