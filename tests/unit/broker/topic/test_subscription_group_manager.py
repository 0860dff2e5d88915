import pytest

from rocketbroker.broker.topic.subscription_group_manager import BUILT_IN_GROUPS, MOST_PASSING, SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from tests.support.fakes import FakeClock
from tests.support.golden_store import files

GOLDEN = files("clean")["config/subscriptionGroup.json"]


def make(tmp_path, **settings):
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", **settings)
    return SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config, FakeClock())


def test_built_in_groups_are_those_of_the_recorded_broker(tmp_path):
    recorded = make(tmp_path)
    recorded.groups.clear()
    recorded.decode(GOLDEN)
    own = {name: group for name, group in recorded.groups.items() if not name.startswith("CG_")}
    assert own == make(tmp_path).groups
    assert own.keys() == set(BUILT_IN_GROUPS)
    assert recorded.encode() == GOLDEN


def test_find_creates_a_group_of_legal_name(tmp_path):
    manager = make(tmp_path)
    counter = manager.data_version.counter
    assert not manager.contains("g")
    group = manager.find("g")
    assert group == SubscriptionGroupConfig(group_name="g")
    assert manager.find("g") is group
    assert manager.data_version.counter == counter + 1


def test_a_group_that_only_pulls_is_not_created(tmp_path):
    manager = make(tmp_path)
    counter = manager.data_version.counter
    group = manager.find_for_pull("g")
    assert group == SubscriptionGroupConfig(group_name="g")
    assert manager.find_for_pull("g") is group
    assert not manager.contains("g")
    assert manager.is_passing("g")
    assert manager.data_version.counter == counter
    created = manager.find("g")
    assert manager.find_for_pull("g") is created
    assert manager.contains("g")
    assert not manager.is_passing("g")


def test_of_groups_that_only_pull_the_latest_are_remembered(tmp_path):
    manager = make(tmp_path)
    for number in range(100_000):
        assert manager.find_for_pull(f"g{number}") is not None
    assert len(manager._passing) == MOST_PASSING
    assert manager.groups.keys() == set(BUILT_IN_GROUPS)
    assert manager.is_passing("g99999")
    assert not manager.is_passing("g0")
    assert manager.find_for_pull("../etc") is None


def test_clients_create_no_more_groups_than_the_limit(tmp_path):
    manager = make(tmp_path, max_auto_create_group_nums=10)
    manager.find("a")
    manager.find("b")
    with pytest.raises(BrokerResponseError) as error:
        manager.find("c")
    assert error.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert error.value.remark.startswith(
        "maxAutoCreateGroupNums: 1 new consumer groups beside 10 exceed the limit of 10, or this address's share"
    )
    assert manager.find("a") is not None
    manager.update(SubscriptionGroupConfig(group_name="made by an administrator"))
    manager.delete("a")
    manager.delete("b")
    assert manager.find("c") is not None


def test_an_address_leaves_groups_to_the_next(tmp_path):
    manager = make(tmp_path, max_auto_create_group_nums=28)
    for number in range(10):
        manager.find(f"g{number}", b"a")
    with pytest.raises(BrokerResponseError, match="maxAutoCreateGroupNums"):
        manager.find("one-more", b"a")
    manager.check_room(10, b"b")
    with pytest.raises(BrokerResponseError, match="maxAutoCreateGroupNums"):
        manager.check_room(11, b"b")
    assert manager.find("lawful", b"b") is not None


@pytest.mark.parametrize("name", ["", " ", "../../etc", "a/b", "a@b", "a" * 121, "\u00e4"])
def test_find_creates_nothing_for_an_illegal_name(tmp_path, name):
    manager = make(tmp_path)
    assert manager.find(name) is None
    assert name not in manager.groups


def test_find_without_auto_create(tmp_path):
    manager = make(tmp_path, auto_create_subscription_group=False)
    assert manager.find("g") is None
    assert manager.find("TOOLS_CONSUMER") is not None


def test_update_and_delete(tmp_path):
    manager = make(tmp_path)
    manager.update(SubscriptionGroupConfig(group_name="g", retry_queue_nums=3, consume_enable=False))
    assert manager.groups["g"].retry_queue_nums == 3
    with pytest.raises(BrokerResponseError, match="unsupported key"):
        manager.update(SubscriptionGroupConfig(group_name="g", attributes={"+x": "y"}))
    manager.update_forbidden("g", "T", 0, forbid=True)
    assert manager.delete("g")
    assert manager.forbidden("g", "T") == 0
    assert not manager.delete("g")


def test_forbidden_bits(tmp_path):
    manager = make(tmp_path)
    manager.update_forbidden("g", "T", 0, forbid=True)
    manager.update_forbidden("g", "T", 3, forbid=True)
    assert manager.forbidden("g", "T") == 9
    manager.update_forbidden("g", "T", 0, forbid=False)
    assert manager.forbidden("g", "T") == 8
    assert manager.forbidden("g", "U") == 0
    manager.update_forbidden("g", "T", 3, forbid=False)
    assert manager.forbidden_table == {}


def test_round_trip(tmp_path):
    manager = make(tmp_path)
    manager.find("g")
    manager.update_forbidden("g", "T", 0, forbid=True)
    manager.path.write_bytes(manager.encode())
    loaded = make(tmp_path)
    assert loaded.load()
    assert (loaded.groups, loaded.forbidden_table) == (manager.groups, manager.forbidden_table)
    assert loaded.data_version == manager.data_version


def test_damaged_file(tmp_path):
    manager = make(tmp_path)
    manager.path.write_bytes(b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":"often"}}}')
    with pytest.raises(ConfigError, match=r"subscriptionGroup\.json is damaged.*retryMaxTimes"):
        manager.load()
    assert manager.groups.keys() == set(BUILT_IN_GROUPS)


@pytest.mark.parametrize(("enabled", "created"), [(True, True), (False, False)])
def test_groups_of_the_system_are_created_unless_that_is_off(tmp_path, enabled, created):
    manager = make(tmp_path, auto_create_subscription_group=False, enable_create_sys_group=enabled)

    assert (manager.find("CID_RMQ_SYS_PROXY_1") is not None) is created
    assert manager.find("mine") is None
