"""Registration, liveness and leaving of brokers."""

import pytest

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.broker_table import BrokerIdentity, RegisterBrokerResult, registration_of
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from tests.support.fakes import FakeClock, FakeConnection

MASTER = "127.0.0.1:10911"
SLAVE = "127.0.0.1:10921"


class Fixture:
    """A manager with a clock that stands still, and what it told brokers."""

    def __init__(self, **settings: object) -> None:
        self.config = NamesrvConfig.model_validate(settings)
        self.clock = FakeClock()
        self.told: list[tuple[str, NotifyMinBrokerIdChangeRequestHeader]] = []
        notifier = MinBrokerIdNotifier(self.config, lambda *said: self.told.append(said))
        self.probed: list[tuple[str, object]] = []
        self.manager = RouteInfoManager(self.config, self.clock, notifier, lambda *holder: self.probed.append(holder))

    def register(
        self,
        *topics: TopicConfig | str,
        address: str = MASTER,
        broker_id: int = 0,
        version: DataVersion | None = None,
        connection: FakeConnection | None = None,
        acting: bool | None = False,
        timeout_ms: int | None = None,
        mappings: dict[str, TopicQueueMappingInfo] | None = None,
        name: str = "broker-a",
        cluster: str = "C",
        servers: list[str] | None = None,
    ) -> RegisterBrokerResult | None:
        configs = [TopicConfig(topic) if isinstance(topic, str) else topic for topic in topics]
        wrapper = TopicConfigAndMappingSerializeWrapper(
            {config.topic_name: config for config in configs},
            version or DataVersion(1, 1),
            topic_queue_mapping_info_map=mappings or {},
        )
        broker = BrokerIdentity(
            cluster_name=cluster,
            broker_name=name,
            broker_addr=address,
            broker_id=broker_id,
            ha_server_addr=f"ha-of-{address}",
            heartbeat_timeout_ms=timeout_ms,
            enable_acting_master=acting,
        )
        body = RegisterBrokerBody(wrapper, servers or [])
        return self.manager.register_broker(registration_of(broker, body, connection or FakeConnection()))

    def unregister(self, address: str, name: str, connection: FakeConnection | None = None, cluster: str = "C") -> None:
        self.manager.unregister_broker(cluster, address, name, connection or FakeConnection())

    def perm(self, topic: str, broker: str = "broker-a") -> int:
        return self.manager.topic_queues.queues(topic)[broker].perm

    def topics(self) -> list[str]:
        return self.manager.topic_queues.topics()

    def addresses(self, topic: str = "T") -> dict[int, str] | None:
        route = self.manager.routes.pickup(topic)
        return None if route is None else route.broker_datas[0].broker_addrs


@pytest.fixture
def namesrv() -> Fixture:
    return Fixture()


def test_a_master_is_routed_and_learns_of_no_other(namesrv: Fixture) -> None:
    assert namesrv.register("T", "U") == RegisterBrokerResult(None, None)
    assert namesrv.addresses() == {0: MASTER}
    assert namesrv.manager.brokers.clusters == {"C": {"broker-a"}}


def test_a_slave_learns_of_its_master_and_brings_no_topics(namesrv: Fixture) -> None:
    assert namesrv.register("T", "U", address=SLAVE, broker_id=1, acting=None) == RegisterBrokerResult()
    assert namesrv.topics() == []
    namesrv.register("T", "U")
    result = namesrv.register("T", "V", address=SLAVE, broker_id=1)
    assert result == RegisterBrokerResult(f"ha-of-{MASTER}", MASTER)
    assert namesrv.topics() == ["T", "U"]
    assert namesrv.addresses() == {0: MASTER, 1: SLAVE}


def test_a_slave_without_master_brings_topics_and_only_an_acting_master_is_read_only() -> None:
    for acting, perm in ((False, 6), (True, 4)):
        namesrv = Fixture()
        namesrv.register("T", "U", address=SLAVE, broker_id=1, acting=acting)
        assert namesrv.perm("T") == perm


def test_one_topic_alone_is_rejected_before_the_whole_registration(namesrv: Fixture) -> None:
    assert namesrv.register("T") is None
    assert namesrv.manager.brokers.by_name == {}
    assert namesrv.manager.brokers.clusters == {}
    namesrv.register("T", "U")
    assert namesrv.register("V", version=DataVersion(2, 2)) == RegisterBrokerResult()
    assert namesrv.topics() == ["T", "U", "V"]


def test_topics_of_an_unchanged_version_are_not_taken_again(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.manager.wipe_write_perm_of_broker("broker-a")
    namesrv.register("T", "U")
    assert namesrv.perm("T") == 4
    namesrv.manager.delete_topic("U")
    namesrv.register("T", "U")
    assert (namesrv.perm("T"), namesrv.perm("U")) == (4, 6)
    namesrv.register("T", "U", version=DataVersion(2, 2))
    assert namesrv.perm("T") == 6


def test_absent_topics_stay_unless_the_setting_says_otherwise() -> None:
    for setting, left in (("false", ["T", "U"]), ("true", ["T"])):
        namesrv = Fixture(deleteTopicWithBrokerRegistration=setting)
        namesrv.register("T", "U")
        namesrv.register("T", version=DataVersion(2, 2))
        assert namesrv.topics() == left


def test_static_topics_keep_absent_topics_from_being_deleted() -> None:
    namesrv = Fixture(deleteTopicWithBrokerRegistration="true")
    namesrv.register("T", "U")
    namesrv.register("T", version=DataVersion(2, 2), mappings={"T": TopicQueueMappingInfo("broker-a", topic="T")})
    assert namesrv.topics() == ["T", "U"]


def test_a_static_topic_without_queues_keeps_absent_topics_as_well() -> None:
    namesrv = Fixture(deleteTopicWithBrokerRegistration="true")
    namesrv.register("T", "U")
    some = {"not all": TopicQueueMappingInfo("broker-a", topic="not all")}
    namesrv.register("V", version=DataVersion(2, 2), mappings=some)
    assert namesrv.topics() == ["T", "U", "V"]
    namesrv.register("V", "W", version=DataVersion(3, 3))
    assert namesrv.topics() == ["V", "W"]


def test_static_topics_are_in_the_route_until_their_broker_leaves(namesrv: Fixture) -> None:
    info = TopicQueueMappingInfo("broker-a", {0: 1}, topic="T", total_queues=2)
    namesrv.register("T", "U", mappings={"T": info, "../T": TopicQueueMappingInfo(topic="../T")})
    assert namesrv.manager.routes.pickup("../T") is None
    route = namesrv.manager.routes.pickup("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": info.as_fields()}
    namesrv.unregister(MASTER, "broker-a")
    namesrv.register("T", "U")
    route = namesrv.manager.routes.pickup("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_an_address_has_one_id_only(namesrv: Fixture) -> None:
    namesrv.register("T", "U", address=SLAVE, broker_id=1)
    namesrv.register("T", "U", address=SLAVE, broker_id=0)
    assert namesrv.addresses() == {0: SLAVE}


# -- places


def host(number: int) -> FakeConnection:
    connection = FakeConnection(f"192.0.2.{number}:50000")
    connection.remote_host = bytes([192, 0, 2, number, 0, 0, 0, 1])
    return connection


def test_an_address_that_another_host_holds_is_rejected(namesrv: Fixture) -> None:
    namesrv.register("T", "U", connection=host(1))
    with pytest.raises(BrokerResponseError) as caught:
        namesrv.register("X", "Y", connection=host(2), version=DataVersion(9, 9, 9))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert f"broker-a:0 at {MASTER}, connected from 192.0.2.1:50000, has its place" in caught.value.remark
    with pytest.raises(BrokerResponseError, match=r"broker-z:7 at .* is rejected: broker-a:0 at"):
        namesrv.register("X", "Y", name="broker-z", broker_id=7, cluster="D", connection=host(2))
    assert namesrv.topics() == ["T", "U"]
    assert list(namesrv.manager.brokers.by_name) == ["broker-a"]


@pytest.mark.parametrize("where", [1, 2], ids=["same host", "another host"])
def test_a_second_master_of_a_name_and_id_is_rejected_while_the_first_lives(namesrv: Fixture, where: int) -> None:
    holder = host(1)
    namesrv.register("T", "U", connection=holder)
    with pytest.raises(
        BrokerResponseError, match="stop the other first: the place is freed when its connection closes"
    ):
        namesrv.register("X", "Y", address="192.0.2.9:10911", connection=host(where))
    assert namesrv.probed == [(MASTER, holder)]
    assert namesrv.addresses() == {0: MASTER}
    assert list(namesrv.manager.brokers.live) == [MASTER]
    assert namesrv.topics() == ["T", "U"]


def test_a_broker_that_restarts_on_its_host_has_its_place_at_once(namesrv: Fixture) -> None:
    namesrv.register("T", "U", connection=host(1))
    again = host(1)
    namesrv.register("T", "U", connection=again)
    assert namesrv.manager.brokers.live[MASTER].connection is again


def test_a_broker_takes_a_place_whose_holder_is_gone(namesrv: Fixture) -> None:
    lost, silent = host(1), host(2)
    namesrv.register("T", "U", connection=lost, timeout_ms=1000)
    lost.is_open = False
    namesrv.register("T", "V", address=SLAVE, connection=silent, timeout_ms=1000)
    assert namesrv.addresses() == {0: SLAVE}
    namesrv.clock.advance(1.1)
    namesrv.register("T", "W", connection=host(3))
    assert namesrv.addresses() == {0: MASTER}
    assert silent.close_reason == f"the broker at {SLAVE} was silent for 1 s"
    assert list(namesrv.manager.brokers.live) == [MASTER]
    assert namesrv.topics() == ["T", "W"]


def test_a_broker_may_change_its_address_over_its_own_connection(namesrv: Fixture) -> None:
    own = host(1)
    namesrv.register("T", "U", connection=own)
    namesrv.register("T", "U", address=SLAVE, connection=own)
    assert namesrv.addresses() == {0: SLAVE}
    assert list(namesrv.manager.brokers.live) == [SLAVE]


def test_a_slave_that_was_elected_takes_the_master_s_id(namesrv: Fixture) -> None:
    slave = host(2)
    namesrv.register("T", "U", connection=host(1), version=DataVersion(1, 1, 5))
    namesrv.register("T", "U", address=SLAVE, broker_id=1, connection=slave, version=DataVersion(1, 1, 5))
    with pytest.raises(BrokerResponseError, match="has its place"):
        namesrv.register("T", "U", address=SLAVE, connection=slave, version=DataVersion(9, 9, 5))
    assert namesrv.addresses() == {0: MASTER, 1: SLAVE}
    namesrv.register("T", "U", address=SLAVE, connection=slave, version=DataVersion(1, 1, 6))
    assert namesrv.addresses() == {0: SLAVE}
    with pytest.raises(BrokerResponseError, match="has its place"):  # no slave of the name
        namesrv.register("T", "U", address="192.0.2.9:1", connection=host(3), version=DataVersion(1, 1, 7))


def test_a_slave_of_another_cluster_is_rejected_while_the_name_lives(namesrv: Fixture) -> None:
    master = host(1)
    namesrv.register("T", "U", connection=master)

    with pytest.raises(BrokerResponseError, match="is of cluster C; give both the same brokerClusterName"):
        namesrv.register("T", "U", address=SLAVE, broker_id=1, cluster="D", connection=host(2))
    assert namesrv.addresses() == {0: MASTER}

    namesrv.manager.connection_closed(master)
    namesrv.register("T", "U", address=SLAVE, broker_id=1, cluster="D", connection=host(2))
    assert namesrv.addresses() == {1: SLAVE}


def test_a_slave_of_another_cluster_does_not_keep_its_master_out(namesrv: Fixture) -> None:
    slave = host(2)
    namesrv.register("T", "U", address=SLAVE, broker_id=1, cluster="D", connection=slave)

    namesrv.register("T", "U", connection=host(1))

    assert namesrv.addresses() == {0: MASTER}
    assert slave.close_reason == "the master of broker-a is of cluster C"
    with pytest.raises(BrokerResponseError, match="is of cluster C"):
        namesrv.register("T", "U", address=SLAVE, broker_id=1, cluster="D", connection=host(2))


def test_only_its_own_host_unregisters_a_broker_or_says_that_it_lives(namesrv: Fixture) -> None:
    own = host(1)
    namesrv.register("T", "U", connection=own)
    with pytest.raises(BrokerResponseError, match="only that host can unregister it") as caught:
        namesrv.unregister(MASTER, "broker-a", host(2))
    assert caught.value.code == ResponseCode.NO_PERMISSION
    namesrv.clock.advance(100)
    namesrv.manager.update_broker_info_update_timestamp("C", MASTER, host(2))
    assert namesrv.manager.brokers.live[MASTER].last_update == namesrv.clock.monotonic() - 100
    own.is_open = False
    namesrv.unregister(MASTER, "broker-a", host(2))
    assert namesrv.manager.brokers.live == {}


# -- limits


def test_one_broker_more_than_allowed_is_rejected_and_the_others_continue() -> None:
    namesrv = Fixture(maxBrokers="2")
    namesrv.register("T", "U")
    namesrv.register("T", "U", address=SLAVE, broker_id=1)
    with pytest.raises(BrokerResponseError, match=r"maxBrokers: 3 brokers exceed the limit of 2; .* raise maxBrokers"):
        namesrv.register("T", "U", name="broker-b", address="127.0.0.1:1")
    namesrv.register("T", "V", version=DataVersion(2, 2))
    assert namesrv.topics() == ["T", "U", "V"]


def test_a_broker_that_registers_too_many_topics_keeps_those_it_has() -> None:
    namesrv = Fixture(maxTopicsPerBroker="10")
    namesrv.register("T", "U", timeout_ms=1000)
    namesrv.clock.advance(0.9)
    with pytest.raises(BrokerResponseError, match="maxTopicsPerBroker: 11 topics of broker-a exceed the limit of 10"):
        namesrv.register(*(f"X{number}" for number in range(9)), version=DataVersion(2, 2))
    namesrv.clock.advance(0.9)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.topics() == ["T", "U"]
    assert namesrv.manager.is_broker_topic_config_changed("C", MASTER, DataVersion(2, 2))
    for number in range(8):
        namesrv.manager.register_topic(f"X{number}", [QueueData("broker-a", 1, 1, 6)])
    with pytest.raises(BrokerResponseError, match="maxTopicsPerBroker"):
        namesrv.manager.register_topic("X8", [QueueData("broker-a", 1, 1, 6)])
    assert len(namesrv.topics()) == 10


def test_topics_of_all_brokers_are_bounded_but_a_broker_that_adds_none_is_accepted() -> None:
    namesrv = Fixture(maxTopicQueueEntries="10")
    namesrv.register("T", "U")
    many = [f"X{number}" for number in range(8)]
    namesrv.register(*many, name="broker-b", address="127.0.0.1:2")
    with pytest.raises(BrokerResponseError, match="maxTopicQueueEntries: 11 topics of all brokers"):
        namesrv.register("T", "V", version=DataVersion(2))
    with pytest.raises(BrokerResponseError, match="maxTopicQueueEntries: 12 topics of all brokers"):
        namesrv.register("T", "U", name="broker-c", address="127.0.0.1:3")
    namesrv.register("T", "U", version=DataVersion(3))
    info = TopicQueueMappingInfo("broker-a", {0: 0}, topic="T")
    with pytest.raises(BrokerResponseError, match="maxTopicQueueEntries: 11"):
        namesrv.register("T", "U", mappings={"T": info})
    with pytest.raises(BrokerResponseError, match="maxTopicQueueEntries: 11"):
        namesrv.manager.register_topic("X", [QueueData("broker-a", 1, 1, 6)])
    assert namesrv.manager.topic_queues.entries() == 10


def test_filter_servers_are_in_the_route(namesrv: Fixture) -> None:
    namesrv.register("T", "U", servers=["127.0.0.1:7"])
    route = namesrv.manager.routes.pickup("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ["127.0.0.1:7"]}


def test_topics_stay_while_another_broker_of_the_name_lives(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.register("T", "U", address=SLAVE, broker_id=1)
    namesrv.unregister(MASTER, "broker-a")
    assert namesrv.addresses() == {1: SLAVE}
    assert namesrv.perm("T") == 6
    namesrv.unregister(SLAVE, "broker-a")
    assert namesrv.topics() == []
    assert namesrv.manager.brokers.clusters == {}


def test_a_lost_master_leaves_an_acting_master_that_cannot_be_written(namesrv: Fixture) -> None:
    namesrv.register("T", "U", acting=True)
    namesrv.register("T", "U", address=SLAVE, broker_id=1, acting=True)
    namesrv.unregister(MASTER, "broker-a")
    assert namesrv.perm("T") == 4


def test_unregistering_a_stranger_changes_nothing(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.unregister("127.0.0.1:31999", "broker-none")
    namesrv.unregister("127.0.0.1:31999", "broker-a")
    namesrv.unregister(MASTER, "broker-a", cluster="D")
    assert namesrv.addresses() == {0: MASTER}


def test_a_broker_that_came_again_under_another_name_is_no_longer_the_old_one(namesrv: Fixture) -> None:
    namesrv.register("T", "U", name="broker-old")
    namesrv.register("T", "U")
    assert list(namesrv.manager.brokers.by_name) == ["broker-a"]
    assert list(namesrv.manager.topic_queues.queues("T")) == ["broker-a"]


def test_a_broker_that_came_again_in_another_cluster_left_the_first(namesrv: Fixture) -> None:
    namesrv.register("T", "U", cluster="D")
    namesrv.register("T", "U")
    assert namesrv.manager.brokers.clusters == {"C": {"broker-a"}}
    assert namesrv.manager.brokers.by_name["broker-a"].cluster == "C"
    assert namesrv.topics() == ["T", "U"]


def test_one_broker_cannot_unregister_another_by_its_address(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.unregister(MASTER, "broker-b")
    assert namesrv.addresses() == {0: MASTER}
    assert MASTER in namesrv.manager.brokers.live


def test_all_brokers_of_a_closed_connection_are_gone(namesrv: Fixture) -> None:
    shared, other = FakeConnection(), FakeConnection()
    namesrv.register("T", "U", connection=shared)
    namesrv.register("T", "U", name="broker-b", address="127.0.0.1:2", connection=shared)
    namesrv.register("T", "U", name="broker-c", address="127.0.0.1:3", connection=other)
    namesrv.manager.connection_closed(shared)
    assert list(namesrv.manager.brokers.by_name) == ["broker-c"]
    assert list(namesrv.manager.topic_queues.queues("T")) == ["broker-c"]


def test_the_old_connection_of_a_broker_that_came_again_does_not_count(namesrv: Fixture) -> None:
    old, new = FakeConnection(), FakeConnection()
    namesrv.register("T", "U", connection=old)
    namesrv.register("T", "U", connection=new)
    namesrv.manager.connection_closed(old)
    assert namesrv.addresses() == {0: MASTER}


def test_a_broker_silent_for_120_s_is_removed_and_its_connection_closed(namesrv: Fixture) -> None:
    connection = FakeConnection()
    namesrv.register("T", "U", connection=connection)
    namesrv.clock.advance(120)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.addresses() == {0: MASTER}
    namesrv.clock.advance(0.001)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.addresses() is None
    assert connection.close_reason == f"the broker at {MASTER} was silent for 120 s"


def test_heartbeats_and_the_broker_s_own_timeout_count(namesrv: Fixture) -> None:
    namesrv.register("T", "U", timeout_ms=1000)
    namesrv.clock.advance(0.9)
    namesrv.manager.update_broker_info_update_timestamp("C", MASTER, FakeConnection())
    namesrv.manager.update_broker_info_update_timestamp("C", "127.0.0.1:31999", FakeConnection())
    namesrv.clock.advance(0.9)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.addresses() == {0: MASTER}
    namesrv.clock.advance(0.2)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.addresses() is None


def test_versions_are_compared_as_a_whole(namesrv: Fixture) -> None:
    manager = namesrv.manager
    assert manager.is_broker_topic_config_changed("C", MASTER, DataVersion(1, 1))
    namesrv.register("T", "U", version=DataVersion(1, 2, 3))
    assert not manager.is_broker_topic_config_changed("C", MASTER, DataVersion(1, 2, 3))
    for other in (DataVersion(9, 2, 3), DataVersion(1, 9, 3), DataVersion(1, 2, 9), None):
        assert manager.is_broker_topic_config_changed("C", MASTER, other)


def test_a_topic_by_hand_needs_known_brokers(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.manager.register_topic("X", [QueueData("broker-a", 1, 1, 6)])
    namesrv.manager.register_topic("Y", [QueueData("broker-a", 1, 1, 6), QueueData("stranger", 1, 1, 6)])
    assert namesrv.topics() == ["T", "U", "X"]


def test_a_topic_is_deleted_in_one_cluster_or_everywhere(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.manager.delete_topic("T", "other-cluster")
    assert namesrv.topics() == ["T", "U"]
    namesrv.manager.delete_topic("T", "C")
    namesrv.manager.delete_topic("U")
    assert namesrv.topics() == []


def test_write_permission_is_taken_and_given_back(namesrv: Fixture) -> None:
    namesrv.register(TopicConfig("T", perm=7), "U")
    assert namesrv.manager.wipe_write_perm_of_broker("broker-a") == 2
    assert namesrv.perm("T") == 5
    assert namesrv.manager.add_write_perm_of_broker("broker-a") == 2
    assert namesrv.perm("T") == 6
    assert namesrv.manager.add_write_perm_of_broker("stranger") == 0


def test_topics_by_cluster_are_listed_once(namesrv: Fixture) -> None:
    namesrv.register("T", "U")
    namesrv.register("T", "U", name="broker-b", address="127.0.0.1:2")
    assert namesrv.manager.topics_by_cluster("C") == ["T", "U"]
    assert namesrv.manager.topics_by_cluster("unknown") == []


def test_cached_routes_are_encoded_again_after_each_change(namesrv: Fixture) -> None:
    def route() -> bytes | None:
        return namesrv.manager.routes.encoded("T", standard_json=True)

    seen = [route()]
    namesrv.register("T", "U")
    seen.append(route())
    namesrv.register("T", "U", address=SLAVE, broker_id=1)
    seen.append(route())
    namesrv.manager.wipe_write_perm_of_broker("broker-a")
    seen.append(route())
    namesrv.register(TopicConfig("T", 2, 2), version=DataVersion(2, 2))
    seen.append(route())
    namesrv.unregister(MASTER, "broker-a")
    seen.append(route())
    assert len(set(seen)) == len(seen)
    assert route() is route()
    namesrv.manager.delete_topic("T")
    assert route() is None


def test_brokers_hear_of_a_changed_smallest_id_where_that_is_on() -> None:
    namesrv = Fixture(notifyMinBrokerIdChanged="true")
    namesrv.register("T", "U", address=SLAVE, broker_id=1, acting=True)
    namesrv.register("T", "U", acting=True)
    namesrv.unregister(MASTER, "broker-a")
    came = NotifyMinBrokerIdChangeRequestHeader(0, None, MASTER, None, f"ha-of-{MASTER}")
    left = NotifyMinBrokerIdChangeRequestHeader(1, None, SLAVE, MASTER, None)
    assert namesrv.told == [(SLAVE, came), (SLAVE, left)]
