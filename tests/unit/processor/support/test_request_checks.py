import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, LockBatchRequestBody
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_checks import (
    check_group,
    check_known_group,
    check_known_topic,
    check_queue,
    check_topic,
    read_body,
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


def test_read_body():
    body = read_body(memoryview(b'{"consumerGroup":"g","clientId":"c","unknown":1}\n'), LockBatchRequestBody)
    assert (body.consumer_group, body.client_id, body.mq_set) == ("g", "c", [])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[]", "LockBatchRequestBody"),
        (b'{"clientId":"c"}', "consumerGroup"),
        (b'{"clientId":"c","consumerGroup":7}', "consumerGroup"),
        (b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":"x"}]}', "queueId"),
    ],
)
def test_wrong_body_is_named(body, named):
    with pytest.raises(BrokerResponseError, match=named) as error:
        read_body(memoryview(body), LockBatchRequestBody)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("kind", [LockBatchRequestBody, HeartbeatData])
@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 200_000 + b"[]]",
        b'{"clientId":1,"consumerGroup":[' + b"[]," * 200_000 + b"[]]}",
        b'{"clientId":"c",1:[' + b"1," * 300_000 + b"1]}",
        b'{"clientId":"c","mqSet":{' + b"{}:1," * 100_000 + b"{}:1}}",
    ],
    ids=["lists", "wrong field", "unquoted key", "object keys"],
)
def test_a_body_that_only_python_could_read_is_rejected_when_it_is_large(body: bytes, kind, monkeypatch):
    monkeypatch.setattr(fastjson, "loads", lambda *_: pytest.fail("each value would be read in Python"))
    with pytest.raises(BrokerResponseError, match="may have 5,000 values") as error:
        read_body(memoryview(body), kind)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


def test_a_large_body_in_plain_json_is_read():
    queue = b'{"topic":"T","brokerName":"b","queueId":1}'
    body = b'{"consumerGroup":"g","clientId":"c","mqSet":[' + (queue + b",") * 10_000 + queue + b"]}"
    assert len(read_body(memoryview(body), LockBatchRequestBody).mq_set) == 10_001
