"""GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312), GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""

from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests

LISTS = {
    RequestCode.GET_UNIT_TOPIC_LIST: b'{"topicList":["unit","both"]}',
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: b'{"topicList":["sub","both"]}',
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: b'{"topicList":["sub"]}',
}


@pytest.mark.parametrize("code", LISTS)
def test_the_recorded_question(namesrv: NamesrvFixture, code: RequestCode) -> None:
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
