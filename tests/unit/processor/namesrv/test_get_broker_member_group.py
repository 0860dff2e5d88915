"""GET_BROKER_MEMBER_GROUP (901)."""

from rocketbroker.codec.remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests


def test_the_recorded_question(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    asked = next(frame for frame in recorded_requests(901) if frame.sender == "broker-master")
    answer = namesrv.replay(asked)
    expected = recorded_answer(asked).command
    assert (answer.code, answer.remark, answer.body) == (expected.code, expected.remark, bytes(expected.body))


def test_an_unknown_name_has_no_addresses(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader("C", "nobody"))
    assert answer.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"nobody","cluster":"C"}}'
