"""Which brokers there are, in which clusters."""

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.namesrv.broker_table import BrokerLiveInfo, BrokerTable
from tests.support.fakes import FakeConnection


def test_a_group_is_made_once() -> None:
    table = BrokerTable()
    group = table.group("C", "a")
    assert table.group("C", "a") is group
    assert table.clusters == {"C": {"a"}}


def test_a_broker_is_found_by_its_address() -> None:
    table = BrokerTable()
    group = table.group("C", "a")
    group.broker_addrs = {0: "h:1", 1: "h:2"}
    assert table.find("h:2") == (group, 1)
    assert table.find("h:3") is None


def test_a_live_broker_is_known_in_its_own_cluster_only() -> None:
    table = BrokerTable()
    info = table.live["h:1"] = BrokerLiveInfo("C", 10.0, 2.0, DataVersion(), FakeConnection(), "h:3")
    assert table.live_info("C", "h:1") is info
    assert table.live_info("D", "h:1") is None
    assert table.live_info("C", "h:2") is None


def test_a_cluster_goes_with_its_last_name() -> None:
    table = BrokerTable()
    table.group("C", "a")
    table.group("C", "b")
    table.drop_group("a")
    assert table.clusters == {"C": {"b"}}
    table.group("D", "b")
    table.drop_group("b")
    table.drop_group("b")
    assert (table.clusters, table.by_name) == ({}, {})


def test_a_name_has_a_master_when_id_0_is_there() -> None:
    table = BrokerTable()
    assert not table.has_master("a")
    table.group("C", "a").broker_addrs = {1: "h:2"}
    assert not table.has_master("a")
    table.group("C", "a").broker_addrs = {0: "h:1", 1: "h:2"}
    assert table.has_master("a")


def test_a_broker_expires_after_its_own_timeout() -> None:
    info = BrokerLiveInfo("C", 10.0, 2.0, DataVersion(), FakeConnection(), "h:3")
    assert not info.expired(12.0)
    assert info.expired(12.1)
