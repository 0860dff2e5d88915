from unittest.mock import Mock

import pytest

from rocketbroker.broker.client import consumer_group_info
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_group_info import (
    LONGEST_CACHED,
    ClientSubscriptions,
    Subscription,
    SubscriptionLimit,
    is_tag_type,
    tag_codes_of,
)
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, SubscriptionData
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import FOREIGN, requests_of


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", None),
        (" * ", None),
        ("", None),
        ("||", None),
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA || || Täg ", {"TagA", "Täg"}),
        ("a" * (LONGEST_CACHED + 1), {"a" * (LONGEST_CACHED + 1)}),
    ],
)
def test_tag_codes_of(expression, tags):
    assert tag_codes_of(expression) == (None if tags is None else {tags_code(tag) for tag in tags})


def test_code_set_of_the_client_is_not_trusted():
    data = SubscriptionData("T", "TagA", 1, ["TagA"], [0])
    assert Subscription(data).tag_codes == frozenset({tags_code("TagA")})


def test_tags_without_an_expression():
    assert Subscription(SubscriptionData("T", "", 1, ["TagA", "TagB"])).tag_codes == frozenset(
        {
            tags_code("TagA"),
            tags_code("TagB"),
        }
    )


def test_sql_is_no_tag_expression():
    found = Subscription(SubscriptionData("T", "color = 'red'", 1, expression_type="SQL92"))
    assert not found.is_tag
    assert found.tag_codes is None
    assert is_tag_type(None)
    assert is_tag_type("")


def test_recorded_java_subscriptions_have_the_same_codes():
    seen = 0
    for frame in requests_of(RequestCode.HEART_BEAT):
        if frame.client in FOREIGN:
            continue
        for consumer in HeartbeatData.decode(frame.body()).consumer_data_set:
            for data in consumer.subscription_data_set:
                subscription = Subscription(data)
                if subscription.is_tag:
                    assert (subscription.tag_codes or frozenset()) == set(data.code_set)
                    seen += bool(data.code_set)
    assert seen


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        (
            SubscriptionData("T", "a" * 16_385),
            "maxSubscriptionLength: a subscription of 16,388 characters exceeds the limit of 16,384; shorten it or",
        ),
        (
            SubscriptionData("T", "a||" * 1024),
            "maxSubscriptionTags: a subscription of 1,025 tags exceeds the limit of 1,024; shorten it or raise",
        ),
        (SubscriptionData("T", "n = 1", expression_type="x" * 16_384), "maxSubscriptionLength: "),
        (SubscriptionData("T", tags_set=["a" * 8_193] * 2), "maxSubscriptionLength: "),
        (SubscriptionData("T", tags_set=["a"] * 1_025), "maxSubscriptionTags: "),
        (SubscriptionData("T", code_set=[1] * 1_025), "maxSubscriptionTags: "),
    ],
)
def test_a_subscription_that_is_too_long_is_rejected(data, remark):
    with pytest.raises(BrokerResponseError) as error:
        SubscriptionLimit(BrokerConfig()).check_data(data)
    assert error.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert error.value.remark.startswith(remark)


def test_a_subscription_of_the_longest_length_passes():
    limit = SubscriptionLimit(BrokerConfig())
    limit.check_data(SubscriptionData("T", "a" * 16_381, tags_set=["a"] * 1_024, code_set=[1] * 1_024))
    limit.check("||".join(["tag"] * 1_024))


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
    monkeypatch.setattr(consumer_group_info, "_comparable", comparable)
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
