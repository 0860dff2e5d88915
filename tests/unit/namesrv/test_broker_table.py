"""Brokers by name, id, cluster and address."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.broker_table import BrokerLiveInfo, BrokerTable, HolderProbe
from tests.support.fakes import FakeClient, FakeConnection
from tests.support.waiting import turns


def live(cluster: str, name: str, broker_id: int, connection: FakeConnection | None = None) -> BrokerLiveInfo:
    return BrokerLiveInfo(cluster, name, broker_id, 10.0, 2.0, DataVersion(), connection or FakeConnection(), "h:3")


def test_a_broker_has_one_place_and_a_place_one_broker() -> None:
    table = BrokerTable()
    group, changed = table.enter("h:2", live("C", "a", 1))
    assert (changed, group.broker_addrs) == (True, {1: "h:2"})
    table.enter("h:1", live("C", "a", 0))
    assert list(group.broker_addrs.items()) == [(0, "h:1"), (1, "h:2")]
    assert table.enter("h:1", live("C", "a", 0)) == (group, False)
    table.enter("h:2", live("C", "a", 0))
    assert group.broker_addrs == {0: "h:2"}
    assert list(table.live) == ["h:2"]


def test_the_holder_of_a_place() -> None:
    table = BrokerTable()
    assert table.holder("a", 0) is None
    table.enter("h:1", live("C", "a", 0))
    assert table.holder("a", 0) == ("h:1", table.live["h:1"])
    assert table.holder("a", 1) is None


def test_a_live_broker_is_known_in_its_own_cluster_only() -> None:
    table = BrokerTable()
    table.enter("h:1", live("C", "a", 0))
    assert table.live_info("C", "h:1") is table.live["h:1"]
    assert table.live_info("D", "h:1") is None
    assert table.live_info("C", "h:2") is None


def test_a_name_and_its_cluster_go_with_their_last_broker() -> None:
    table = BrokerTable()
    table.enter("h:1", live("C", "a", 0))
    table.enter("h:2", live("C", "b", 0))
    group, _ = table.enter("h:3", live("D", "b", 1))
    assert table.clusters == {"C": {"a", "b"}, "D": {"b"}}
    assert table.remove("h:3") == (group, 1)
    assert table.clusters == {"C": {"a", "b"}}
    table.remove("h:1")
    assert table.remove("h:1") is None
    table.remove("h:2")
    assert (table.clusters, table.by_name, table.live) == ({}, {}, {})


def test_a_name_has_a_master_when_id_0_is_there() -> None:
    table = BrokerTable()
    assert not table.has_master("a")
    table.enter("h:2", live("C", "a", 1))
    assert not table.has_master("a")
    table.enter("h:1", live("C", "a", 0))
    assert table.has_master("a")


def test_a_broker_expires_after_its_own_timeout_or_with_its_connection() -> None:
    connection = FakeConnection()
    info = live("C", "a", 0, connection)
    assert not info.expired(12.0)
    assert not info.is_gone(12.0)
    assert info.expired(12.1)
    assert info.is_gone(12.1)
    connection.close("")
    assert info.is_gone(12.0)


def test_the_host_counts_and_not_the_port() -> None:
    info = live("C", "a", 0)
    other = FakeConnection()
    other.remote_host = bytes([127, 0, 0, 1, 0, 0, 0, 9])
    assert info.is_on_host_of(other)
    other.remote_host = bytes([127, 0, 0, 2, 0, 0, 0, 9])
    assert not info.is_on_host_of(other)


@pytest.fixture
async def tasks() -> AsyncIterator[TaskOwner]:
    owner = TaskOwner("test")
    yield owner
    await owner.stop()


async def test_one_that_answers_anything_stays(tasks: TaskOwner) -> None:
    holder = FakeClient(response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not served"))
    probe = HolderProbe(tasks)
    probe.ask("h:1", holder)
    probe.ask("h:1", holder)
    await turns()
    assert (len(holder.asked), holder.is_open) == (1, True)
    probe.ask("h:1", holder)
    await turns()
    assert len(holder.asked) == 2


async def test_one_that_is_silent_is_closed(tasks: TaskOwner) -> None:
    holder = FakeClient(RemotingTimeoutError("no answer"))
    HolderProbe(tasks, timeout_s=0.5).ask("h:1", holder)
    await turns()
    reason = "the broker at h:1 did not answer within 0.5 s, and another broker claims its place"
    assert (holder.is_open, holder.close_reason) == (False, reason)
    assert holder.asked[0][1] == 0.5


async def test_one_that_could_not_be_asked_stays(tasks: TaskOwner) -> None:
    holder = FakeClient(RemotingSendError("too far behind"))
    HolderProbe(tasks).ask("h:1", holder)
    await turns()
    assert holder.is_open
