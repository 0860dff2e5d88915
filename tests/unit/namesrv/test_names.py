"""The names that may key the tables of the name server."""

import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.names import (
    check_address,
    check_broker_name,
    check_key,
    check_topic,
    is_registered_topic,
)


def test_a_topic_by_the_rule_passes() -> None:
    check_topic("%RETRY%group_topic")


@pytest.mark.parametrize(
    ("topic", "named"), [("", "blank"), ("../a", "allowing only ^[%|a-zA-Z0-9_-]+$"), ("x" * 128, "max length: 127")]
)
def test_a_topic_outside_the_rule_is_rejected(topic: str, named: str) -> None:
    with pytest.raises(BrokerResponseError) as bad:
        check_topic(topic)
    assert bad.value.code == ResponseCode.INVALID_PARAMETER
    assert named in bad.value.remark


def test_a_refusal_shows_the_head_of_a_long_name_only() -> None:
    with pytest.raises(BrokerResponseError) as bad:
        check_broker_name("brokerName", "x" * 1_000_000)
    assert len(bad.value.remark) < 250


@pytest.mark.parametrize(
    ("topic", "allowed"),
    [
        ("TopicA", True),
        ("host.example.org", True),
        ("rmq_sys_SYNC_BROKER_MEMBER_host.example.org", True),
        ("my.cluster_REPLY_TOPIC", True),
        ("other.example.org", False),
        ("../host.example.org", False),
        ("host.example.org/..", False),
        ("host.example.org" * 20, False),
    ],
)
def test_topics_named_after_a_broker_may_have_its_dots(topic: str, allowed: bool) -> None:
    assert is_registered_topic(topic, "host.example.org", "my.cluster") is allowed


@pytest.mark.parametrize("name", ["broker-a", "host.example.org", "a" * 255, "host:1"])
def test_broker_names_that_are_allowed(name: str) -> None:
    check_broker_name("brokerName", name)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../x", "a b", "a" * 256, "a\x00"])
def test_broker_names_that_are_rejected(name: str) -> None:
    with pytest.raises(BrokerResponseError, match=r"the clusterName .* is not allowed"):
        check_broker_name("clusterName", name)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "host:65535", "[::1]:10911", "fe80::1%eth0:10911"])
def test_addresses_that_are_allowed(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:1a",
        "host:-1",
        "host:²",
        "a b:1",
        "h\u2028:1",
        "h" * 260,
    ],
)
def test_addresses_that_are_rejected(address: str) -> None:
    with pytest.raises(BrokerResponseError, match="host:port"):
        check_address(address)


def test_keys_may_be_addresses_but_hold_no_blanks() -> None:
    check_key("key", "192.0.2.1")
    for bad in ("", "a b", "a\nb", "a\x85b", "x" * 256):
        with pytest.raises(BrokerResponseError, match=r"the namespace .* 1 to 255 characters"):
            check_key("namespace", bad)
