"""GET_ROUTEINFO_BY_TOPIC (105)."""

from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader, PutKVConfigRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests

TOPIC = GetRouteInfoRequestHeader("TBW102")


def test_the_recorded_question_for_an_unknown_topic(namesrv: NamesrvFixture) -> None:
    asked = recorded_requests(105)[0]
    answer, expected = namesrv.replay(asked), recorded_answer(asked).command
    assert (answer.code, answer.remark) == (expected.code, expected.remark)


@pytest.mark.parametrize(
    ("version", "accepts", "quoted"),
    [(513, None, True), (401, None, True), (400, None, False), (63, False, False), (317, True, True)],
)
def test_broker_ids_are_quoted_by_version_or_wish(
    namesrv: NamesrvFixture, version: int, accepts: bool | None, quoted: bool
) -> None:
    namesrv.register_recorded_broker()
    header = GetRouteInfoRequestHeader("TBW102", accepts)
    body = bytes(namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version).body)
    assert (b'{"0":"127.0.0.1:30911"}' in body) is quoted
    assert (b'{0:"127.0.0.1:30911"}' in body) is not quoted
    assert b'"perm":7,"readQueueNums":8,' in body


def test_the_order_configuration_is_sent_if_enabled(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    for setting, told in (("true", True), ("false", False)):
        namesrv = make_namesrv(orderMessageEnable=setting)
        namesrv.register_recorded_broker()
        plain = namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, TOPIC)
        assert b"orderTopicConf" not in plain.body
        put = PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "TBW102", "broker-a:8")
        namesrv.ask(RequestCode.PUT_KV_CONFIG, put)
        answer = namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, TOPIC)
        assert (b'"orderTopicConf":"broker-a:8"' in answer.body) is told


def test_routes_wait_for_brokers_where_that_is_on(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    namesrv = make_namesrv(needWaitForService="true", waitSecondsForService=45)
    namesrv.register_recorded_broker()
    namesrv.clock.advance(44.9)
    early = namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, TOPIC)
    assert (early.code, early.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    namesrv.clock.advance(0.1)
    assert namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, TOPIC).code == 0


def test_the_remark_shows_the_head_of_a_long_name_only(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("x" * 100_000))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(answer.remark or "") < 500
