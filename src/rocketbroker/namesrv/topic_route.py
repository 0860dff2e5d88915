"""Routes of topics for clients, and the cache of encoded answers (pickupTopicRouteData of RouteInfoManager)."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from rocketbroker.codec.message.topic_validator import SYNC_BROKER_MEMBER_GROUP_PREFIX
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.broker_table import BrokerTable
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable

_MOST_BYTES = 64 << 20
# Leaves room for the header in a frame.
LARGEST_BODY = FRAME_MAX_LENGTH - 65_536


class EncodedAnswers:
    """Encoded bodies by request, kept until the tables change: clients repeat their requests every 30 s.

    A change drops the routes of its topics only. A cluster of 1,000 brokers changes all the time, and encoding the
    routes of 10,000 topics takes seconds.

    Args:
        most_bytes: size above which the cache is emptied.

    Attributes:
        size: bytes of the cached bodies.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.size = 0
        self._routes: dict[str, dict[Hashable, bytes]] = {}
        self._lists: dict[Hashable, bytes] = {}

    def route(self, topic: str, form: Hashable, make: Callable[[], bytes | None]) -> bytes | None:
        """Return the cached or newly made route; ``None``, which is not cached, for a topic without one.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the body does not fit a frame.
        """
        body = self._routes.get(topic, {}).get(form)
        if body is None:
            body = make()
            if body is not None:
                self._make_room(body)
                self._routes.setdefault(topic, {})[form] = body
        return body

    def list(self, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the cached or newly made list of brokers or topics.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the body does not fit a frame.
        """
        body = self._lists.get(asked)
        if body is None:
            body = make()
            self._make_room(body)
            self._lists[asked] = body
        return body

    def _make_room(self, body: bytes) -> None:
        if len(body) > LARGEST_BODY:
            text = (
                f"the answer has {len(body):,} bytes, more than a frame can carry; ask for a part of it, such as a "
                "cluster"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
        if self.size + len(body) > self._most_bytes:
            self.forget()
        self.size += len(body)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Drop the routes of topics that changed, and all lists."""
        for topic in self._routes.keys() & topics:
            self.size -= sum(map(len, self._routes.pop(topic).values()))
        self.size -= sum(map(len, self._lists.values()))
        self._lists.clear()

    def forget(self) -> None:
        """Empty the cache after a change of a setting."""
        self._routes.clear()
        self._lists.clear()
        self.size = 0


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
