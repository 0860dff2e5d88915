"""GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""

from collections.abc import Callable

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def test_all_topics_are_listed(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    listed = TopicList.decode(namesrv.replay(recorded_requests(206)[0]).body)
    assert len(listed.topic_list) == 16
    assert {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} <= set(listed.topic_list)
    assert listed.broker_addr is None


def test_it_can_be_switched_off(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    answer = make_namesrv(enableAllTopicList="false").ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_the_list_is_made_once_until_a_topic_comes_or_goes(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    bodies = [namesrv.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body for _ in range(2)]
    assert bodies[0] is bodies[1]
    namesrv.manager.delete_topic("TBW102")
    left = TopicList.decode(namesrv.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body).topic_list
    assert len(left) == 15
