"""REGISTER_TOPIC_IN_NAMESRV (217)."""

import pytest

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.headers.namesrv import RegisterTopicRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def test_the_recorded_registration(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    assert namesrv.replay(recorded_requests(217)[0]).code == 0
    assert namesrv.manager.topic_queues.queues("RawNsTopic") == {"broker-a": QueueData("broker-a", 1, 1, 6)}


def test_a_registration_on_an_unknown_broker_changes_nothing(namesrv: NamesrvFixture) -> None:
    assert namesrv.replay(recorded_requests(217)[0]).code == 0
    assert namesrv.manager.topic_queues.topics() == []


@pytest.mark.parametrize("body", [b"", b"{}", b'{"queueDatas":[]}', b'{"queueDatas":null}'])
def test_no_queues_are_no_error(namesrv: NamesrvFixture, body: bytes) -> None:
    answer = namesrv.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader("T"), body)
    assert answer.code == 0
    assert namesrv.manager.topic_queues.topics() == []


@pytest.mark.parametrize(
    ("topic", "body", "code", "named"),
    [
        ("../etc", b"", ResponseCode.INVALID_PARAMETER, "topic: ../etc, contains illegal characters"),
        ("T", b"[", ResponseCode.SYSTEM_ERROR, "REGISTER_TOPIC_IN_NAMESRV is not a TopicRouteData"),
        ("T", b" " * 32_769, ResponseCode.SYSTEM_ERROR, "has 32,769 bytes; the limit is 32,768"),
        ("T", b'{"queueDatas":[7]}', ResponseCode.SYSTEM_ERROR, "TopicRouteData"),
    ],
)
def test_the_fault_is_named(namesrv: NamesrvFixture, topic: str, body: bytes, code: int, named: str) -> None:
    answer = namesrv.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader(topic), body)
    assert answer.code == code
    assert named in (answer.remark or "")
