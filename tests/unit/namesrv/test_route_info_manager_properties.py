"""Invariants of the name server's tables after any sequence of events."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.broker_table import BrokerIdentity, registration_of
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from tests.support.fakes import FakeClock, FakeConnection

TOPICS = ["T0", "T1", "T2"]
names = st.sampled_from(["broker-a", "broker-b"])
ids = st.integers(0, 2)
addresses = st.sampled_from(["h:1", "h:2", "h:3", "h:4"])
clusters = st.sampled_from(["C", "D"])
topic_sets = st.sets(st.sampled_from(TOPICS), min_size=1)


def refusal(act: Callable[[], object]) -> BrokerResponseError | None:
    try:
        act()
    except BrokerResponseError as error:
        return error
    return None


def host_connection(number: int) -> FakeConnection:
    connection = FakeConnection(f"192.0.2.{number}:50000")
    connection.remote_host = bytes([192, 0, 2, number, 0, 0, 0, 1])
    return connection


class NameServerLife(RuleBasedStateMachine):
    """Brokers come, say different things, leave or fall silent, in any order."""

    def __init__(self) -> None:
        super().__init__()
        config = NamesrvConfig.model_validate({"supportActingMaster": "true"})
        self.clock = FakeClock()
        self.connections = [host_connection(number) for number in (1, 1, 2)]
        notifier = MinBrokerIdNotifier(config, lambda address, header: None)
        self.manager = RouteInfoManager(config, self.clock, notifier, lambda address, connection: None)

    @rule(
        who=st.tuples(clusters, names, addresses, ids),
        topics=topic_sets,
        version=st.integers(0, 3),
        acting=st.sampled_from([None, True, False]),
        connection=st.integers(0, 2),
        queues=st.integers(1, 2),
    )
    def register(
        self,
        who: tuple[str, str, str, int],
        topics: set[str],
        version: int,
        acting: bool | None,
        connection: int,
        queues: int,
    ) -> None:
        table = {topic: TopicConfig(topic, queues, queues) for topic in sorted(topics)}
        wrapper = TopicConfigAndMappingSerializeWrapper(table, DataVersion(version, version, version))
        broker = BrokerIdentity(
            cluster_name=who[0],
            broker_name=who[1],
            broker_addr=who[2],
            broker_id=who[3],
            ha_server_addr="ha",
            heartbeat_timeout_ms=None,
            enable_acting_master=acting,
        )
        before = self.places()
        said = registration_of(broker, RegisterBrokerBody(wrapper), self.connections[connection])
        refused = refusal(lambda: self.manager.register_broker(said))
        if refused is not None:
            assert "has its place" in refused.remark or "the same brokerClusterName" in refused.remark
            assert self.places() == before

    def places(self) -> dict[str, dict[int, str]]:
        return {name: dict(data.broker_addrs) for name, data in self.manager.brokers.by_name.items()}

    @rule(cluster=clusters, address=addresses, name=names, connection=st.integers(0, 2))
    def unregister(self, cluster: str, address: str, name: str, connection: int) -> None:
        refused = refusal(lambda: self.manager.unregister_broker(cluster, address, name, self.connections[connection]))
        if refused is not None:
            assert refused.code == ResponseCode.NO_PERMISSION
        assert (address in self.manager.brokers.live) >= (refused is not None)

    @rule(connection=st.integers(0, 2))
    def lose_connection(self, connection: int) -> None:
        lost = self.connections[connection]
        lost.is_open = False
        self.manager.connection_closed(lost)
        self.connections[connection] = host_connection(lost.remote_host[3])

    @rule(seconds=st.sampled_from([30, 121]))
    def fall_silent(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.manager.scan_not_active_broker()
        self.connections = [
            connection if connection.is_open else host_connection(connection.remote_host[3])
            for connection in self.connections
        ]

    @rule(name=names, wipe=st.booleans())
    def change_permission(self, name: str, wipe: bool) -> None:
        if wipe:
            self.manager.wipe_write_perm_of_broker(name)
        else:
            self.manager.add_write_perm_of_broker(name)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "C", "D"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.manager.delete_topic(topic, cluster)

    @invariant()
    def kept_routes_are_true(self) -> None:
        for topic in TOPICS:
            route = self.manager.routes.pickup(topic)
            fresh = None if route is None else route.encode_standard()
            assert self.manager.routes.encoded(topic, standard_json=True) == fresh

    @invariant()
    def no_name_is_without_a_broker_or_a_cluster(self) -> None:
        brokers = self.manager.brokers
        in_clusters = {name for names in brokers.clusters.values() for name in names}
        assert in_clusters == set(brokers.by_name)
        assert all(data.broker_addrs for data in brokers.by_name.values())
        assert all(brokers.clusters.values())
        for data in brokers.by_name.values():
            assert list(data.broker_addrs) == sorted(data.broker_addrs)

    @invariant()
    def topics_are_on_known_brokers(self) -> None:
        queues = self.manager.topic_queues
        for topic in queues.topics():
            assert queues.queues(topic).keys() <= self.manager.brokers.by_name.keys()
            assert queues.queues(topic)

    @invariant()
    def every_address_of_a_broker_is_watched(self) -> None:
        held = [address for data in self.manager.brokers.by_name.values() for address in data.broker_addrs.values()]
        assert set(held) == self.manager.brokers.live.keys()
        assert len(held) == len(set(held))


TestNameServerLife = NameServerLife.TestCase
TestNameServerLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
