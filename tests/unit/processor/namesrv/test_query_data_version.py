"""QUERY_DATA_VERSION (322)."""

from rocketbroker.codec.remoting.headers.namesrv import QueryDataVersionRequestHeader, QueryDataVersionResponseHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests

KNOWN = b'{"counter":0,"stateVersion":0,"timestamp":1795253914353}'
HEADER = QueryDataVersionRequestHeader("broker-a", "127.0.0.1:30911", "DefaultCluster", 0)


def test_the_recorded_question_about_another_version(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.replay(recorded_requests(322)[0])
    assert answer.header == QueryDataVersionResponseHeader(changed=True)
    assert answer.body == KNOWN


def test_the_same_version_is_no_change(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN)
    assert answer.header == QueryDataVersionResponseHeader(changed=False)


def test_no_version_and_an_unknown_broker_are_changes(namesrv: NamesrvFixture) -> None:
    assert namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN).body == b""
    namesrv.register_recorded_broker()
    assert namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER).header == QueryDataVersionResponseHeader(changed=True)


def test_asking_is_a_sign_of_life(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    namesrv.clock.advance(100)
    namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN)
    namesrv.clock.advance(100)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.manager.brokers.live


def test_a_body_that_is_no_version_is_named(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, b'{"counter":"many"}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "QUERY_DATA_VERSION is not a DataVersion" in (answer.remark or "")


def test_a_body_that_is_too_long_for_a_version_is_not_read(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, b"[" + b"[]," * 500 + b"1]")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "has 1,503 bytes; a DataVersion has fewer than 100" in (answer.remark or "")
