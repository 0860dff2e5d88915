import pytest

from rocketbroker.codec.remoting.headers.admin import QueryTopicConsumeByWhoRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.query_topic_consume_by_who import QueryTopicConsumeByWhoProcessor
from tests.support.processor_calls import call, recorded, refusal


@pytest.fixture
def processor(parts):
    return QueryTopicConsumeByWhoProcessor(parts.consumers, parts.offsets)


def test_groups_with_offsets_and_groups_with_clients(parts, consumer, processor):
    parts.offsets.commit("B", "T", 0, 1)
    parts.offsets.commit("Z", "Other", 0, 1)
    consumer("A", "a", "T", "Other")
    consumer("B", "b", "T", port=50002)
    answer = call(processor.process, QueryTopicConsumeByWhoRequestHeader("T"))
    assert answer == (0, None, {}, {"groupList": ["A", "B"]})


def test_recorded_requests(parts, processor):
    groups = set()
    for command, theirs in recorded(300, QueryTopicConsumeByWhoRequestHeader):
        parts.offsets.remove_topic(command.header.topic)
        for group in theirs.body["groupList"]:
            parts.offsets.commit(group, command.header.topic, 0, 1)
        theirs.body["groupList"].sort()
        assert call(processor.process, command.header) == theirs
        groups.update(theirs.body["groupList"])
    assert {"CID_RMQ_SYS_TRANS", "CG_Push"} <= groups


@pytest.mark.parametrize("topic", ["../up", ""])
def test_bad_names_are_named(processor, topic):
    code, remark = refusal(processor.process, QueryTopicConsumeByWhoRequestHeader(topic))
    assert code == ResponseCode.INVALID_PARAMETER
    assert repr(topic) in remark
