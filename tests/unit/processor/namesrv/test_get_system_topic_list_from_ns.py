"""GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.headers.namesrv import RegisterBrokerRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests


def test_the_recorded_question(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    asked = recorded_requests(304)[0]
    expected = TopicList.decode(recorded_answer(asked).command.body)
    found = TopicList.decode(namesrv.replay(asked).body)
    assert found.broker_addr == expected.broker_addr == "127.0.0.1:30911"
    assert sorted(found.topic_list) == sorted(expected.topic_list) == ["DefaultCluster", "broker-a"]


def test_a_broker_named_like_its_cluster_is_listed_once(namesrv: NamesrvFixture) -> None:
    header = RegisterBrokerRequestHeader("same", "127.0.0.1:10911", "same", "127.0.0.1:10912", 0)
    assert namesrv.ask(RequestCode.REGISTER_BROKER, header).code == 0
    answer = namesrv.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body == b'{"brokerAddr":"127.0.0.1:10911","topicList":["same"]}'
