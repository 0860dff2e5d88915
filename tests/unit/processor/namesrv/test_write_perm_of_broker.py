"""WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def perm(namesrv: NamesrvFixture) -> int:
    return namesrv.manager.topic_queues.queues("BenchmarkTest")["broker-a"].perm


def test_the_recorded_requests_count_topics_and_change_permissions(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    assert namesrv.replay(recorded_requests(205)[0]).header == WipeWritePermOfBrokerResponseHeader(16)
    assert perm(namesrv) == 4
    assert namesrv.replay(recorded_requests(327)[0]).header == AddWritePermOfBrokerResponseHeader(16)
    assert perm(namesrv) == 6


def test_an_unknown_broker_has_no_topics(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader("nobody"))
    assert answer.header == AddWritePermOfBrokerResponseHeader(0)
