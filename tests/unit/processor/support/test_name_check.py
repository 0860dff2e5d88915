import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import (
    check_group,
    check_known_group,
    check_known_topic,
    check_queue,
    check_topic,
)


@pytest.mark.parametrize("name", ["../up", "a/b", "", " ", "a b", "ü", "a\n", "a\0", "x" * 300, ".."])
@pytest.mark.parametrize("check", [check_topic, check_group, check_known_group])
def test_names_outside_the_rule_are_rejected(check, name):
    with pytest.raises(BrokerResponseError) as error:
        check(name)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert "The specified" in error.value.remark


@pytest.mark.parametrize("name", ["../up", "a/b", "", " ", "a b", "ü", "a\n", "a\0"])
def test_an_invalid_topic_name_is_not_looked_up(name):
    with pytest.raises(BrokerResponseError) as error:
        check_known_topic(name)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert repr(name) in error.value.remark


def test_topics_named_after_brokers_are_looked_up():
    check_known_topic("broker.example.org:1")
    check_known_topic("%RETRY%a|b_c-D")


def test_a_long_illegal_name_does_not_come_back_whole():
    with pytest.raises(BrokerResponseError) as error:
        check_known_topic("/" * 100_000)
    assert len(error.value.remark) < 1000


def test_groups_of_older_brokers_may_be_longer():
    check_known_group("g" * 255)
    with pytest.raises(BrokerResponseError):
        check_group("g" * 121)


def test_queue_ids_are_not_negative():
    check_queue("T", 0)
    with pytest.raises(BrokerResponseError, match="queueId -1 of topic T"):
        check_queue("T", -1)
