"""GET_BROKER_CLUSTER_INFO (106)."""

from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests


def test_the_recorded_question(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    asked = recorded_requests(106)[0]
    assert namesrv.replay(asked).body == bytes(recorded_answer(asked).command.body)


def test_nothing_is_known_at_first(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
