"""GET_TOPICS_BY_CLUSTER (224)."""

from collections.abc import Callable

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.headers.namesrv import GetTopicsByClusterRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def test_the_topics_of_a_cluster(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    listed = TopicList.decode(namesrv.replay(recorded_requests(224)[0]).body)
    assert sorted(listed.topic_list) == sorted(namesrv.manager.topic_queues.topics())


def test_an_unknown_cluster_has_none(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("nowhere"))
    assert answer.body == b'{"topicList":[]}'


def test_it_can_be_switched_off(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    namesrv = make_namesrv(enableTopicList="false")
    answer = namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("C"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
