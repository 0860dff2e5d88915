"""GET_ROUTEINFO_BY_TOPIC (105)."""

from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
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


def test_the_recorded_question(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    asked = recorded_requests(106)[0]
    assert namesrv.replay(asked).body == bytes(recorded_answer(asked).command.body)


def test_nothing_is_known_at_first(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


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


def test_the_topics_of_a_cluster(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    listed = TopicList.decode(namesrv.replay(recorded_requests(224)[0]).body)
    assert sorted(listed.topic_list) == sorted(namesrv.manager.topic_queues.topics())


def test_an_unknown_cluster_has_none(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("nowhere"))
    assert answer.body == b'{"topicList":[]}'


def test_it_can_be_switched_off_get_topics_by_cluster(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    namesrv = make_namesrv(enableTopicList="false")
    answer = namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("C"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_the_recorded_question_get_system_topic_list_from_ns(namesrv: NamesrvFixture) -> None:
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


LISTS = {
    RequestCode.GET_UNIT_TOPIC_LIST: b'{"topicList":["unit","both"]}',
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: b'{"topicList":["sub","both"]}',
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: b'{"topicList":["sub"]}',
}


@pytest.mark.parametrize("code", LISTS)
def test_the_recorded_question_get_unit_topic_list(namesrv: NamesrvFixture, code: RequestCode) -> None:
    namesrv.register_recorded_broker()
    asked = recorded_requests(code)[0]
    assert namesrv.replay(asked).body == bytes(recorded_answer(asked).command.body)


@pytest.mark.parametrize("code", LISTS)
def test_topics_are_chosen_by_their_flags(namesrv: NamesrvFixture, code: RequestCode) -> None:
    for topic, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3)):
        namesrv.manager.topic_queues.put(topic, QueueData("a", 1, 1, 6, flag))
    assert namesrv.ask(code).body == LISTS[code]


@pytest.mark.parametrize("code", LISTS)
def test_they_can_be_switched_off(make_namesrv: Callable[..., NamesrvFixture], code: RequestCode) -> None:
    answer = make_namesrv(enableTopicList="false").ask(code)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


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
        ("T", b"[", ResponseCode.SYSTEM_ERROR, "the body of the request: JSON at character 1"),
        ("T", b" " * 32_769, ResponseCode.SYSTEM_ERROR, "has 32,769 bytes; a TopicRouteData has 32,768 at most"),
        ("T", b'{"queueDatas":[7]}', ResponseCode.SYSTEM_ERROR, "TopicRouteData"),
    ],
)
def test_the_fault_is_named(namesrv: NamesrvFixture, topic: str, body: bytes, code: int, named: str) -> None:
    answer = namesrv.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader(topic), body)
    assert answer.code == code
    assert named in (answer.remark or "")


@pytest.mark.parametrize(
    ("cluster", "left"), [(None, False), ("", False), ("DefaultCluster", False), ("OtherCluster", True)]
)
def test_a_topic_is_deleted_everywhere_or_in_a_cluster(
    namesrv: NamesrvFixture, cluster: str | None, left: bool
) -> None:
    namesrv.register_recorded_broker()
    header = DeleteTopicFromNamesrvRequestHeader("TBW102", cluster)
    assert namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header).code == 0
    assert ("TBW102" in namesrv.manager.topic_queues.topics()) is left


def test_the_recorded_deletions_of_unknown_topics_are_no_error(namesrv: NamesrvFixture) -> None:
    for asked in recorded_requests(216):
        assert namesrv.replay(asked).code == 0


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
