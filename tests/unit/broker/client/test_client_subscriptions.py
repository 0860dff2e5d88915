from unittest.mock import Mock

import pytest

from rocketbroker.broker.client import client_subscriptions
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.client_subscriptions import ClientSubscriptions
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from tests.support.fakes import FakeConnection


def client(name):
    return ClientChannelInfo(FakeConnection(), name, "JAVA", 513, 0.0)


def says(expression, topic="T", kind="TAG", version=1):
    return SubscriptionData(topic, expression, version, expression_type=kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([says("*")], [says("*", version=2)]),
        ([says("a || b")], [says("b||a ")]),
        ([says("")], [says("*")]),
        ([says("*"), says("*", "%RETRY%g")], [says("*")]),
        ([says("a > 1", kind="SQL92")], [says(" a > 1", kind="SQL92")]),
        ([SubscriptionData("T", "", 1, ["b", "a"])], [says("a||b")]),
        ([says("*")], []),
        ([], [says("*")]),
        ([says("*")], [says("*", "%RETRY%g")]),
    ],
)
def test_the_same_in_other_words_is_no_conflict(one, other):
    table = ClientSubscriptions()
    assert not table.update(client("one"), one)
    assert not table.update(client("two"), other)
    assert table.conflict == ""


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ([says("a")], [says("b")], "of topic T one wants a and two wants b"),
        ([says("*")], [says("b")], "of topic T one wants * and two wants b"),
        ([says("*")], [says("*"), says("*", "U")], "of topic U one wants nothing and two wants *"),
        ([says("a > 1")], [says("a > 1", kind="SQL92")], "of topic T one wants a > 1 and two wants SQL92 a > 1"),
    ],
)
def test_different_subscriptions_are_named(one, other, named):
    table = ClientSubscriptions()
    table.update(client("one"), one)
    assert table.update(client("two"), other)
    assert named in table.conflict


def test_a_conflict_is_reported_once_and_ends_when_a_client_changes_or_leaves():
    table = ClientSubscriptions()
    one, two, three = client("one"), client("two"), client("three")
    table.update(one, [says("a")])
    assert table.update(two, [says("b")])
    assert not table.update(two, [says("b", version=2)])
    assert not table.update(three, [says("a")])
    assert table.update(two, [says("a")])
    assert table.conflict == ""
    assert table.update(two, [says("c")])
    assert table.remove(two.connection)
    assert not table.remove(two.connection)
    assert table.conflict == ""


def test_a_client_that_subscribes_to_nothing_any_more_is_not_compared():
    table = ClientSubscriptions()
    one, two = client("one"), client("two")
    table.update(one, [says("a")])
    table.update(two, [says("b")])
    assert table.update(two, [])
    assert not table.is_conflicting


def test_joining_and_leaving_cost_the_same_in_a_group_of_any_size(monkeypatch):
    table = ClientSubscriptions()
    clients = [client(str(number)) for number in range(2_000)]
    for channel in clients[:-1]:
        table.update(channel, [says("a")])
    comparable = Mock(return_value=("TAG", "a"))
    monkeypatch.setattr(client_subscriptions, "_comparable", comparable)
    assert not table.update(clients[-1], [says("a")])
    assert comparable.call_count == 1
    assert len(table._alike) == 1
    for channel in clients:
        assert not table.remove(channel.connection)
    assert (table._clients, table._alike) == ({}, {})


def test_a_long_expression_is_shortened_in_the_text():
    table = ClientSubscriptions()
    table.update(client("one"), [says("a" * 10_000)])
    table.update(client("two"), [says("b\n")])
    assert "aaa... (10000 characters) and two wants b" in table.conflict
    assert len(table.conflict) < 500
