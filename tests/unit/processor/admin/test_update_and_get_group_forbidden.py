import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import UpdateGroupForbiddenRequestHeader as Header
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.update_and_get_group_forbidden import UpdateAndGetGroupForbiddenProcessor
from tests.support.processor_calls import call, recorded, refusal


@pytest.fixture
def processor(parts):
    for topic in ("T", "U", "GoldenTopic"):
        parts.topic_configs.update(TopicConfig(topic))
    for group in ("g", "CG_Push"):
        parts.subscription_groups.find(group)
    return UpdateAndGetGroupForbiddenProcessor(parts.topic_configs, parts.subscription_groups)


def readable(processor, topic, change=None):
    answer = call(processor.process, Header("g", topic, change))
    assert answer[:3] == (0, "", {})
    assert answer.body.items() >= {"group": "g", "topic": topic}.items()
    return answer.body["readable"]


def test_the_limit_is_set_and_returned(parts, processor):
    assert readable(processor, "T")
    assert not readable(processor, "T", False)
    assert not readable(processor, "T")
    assert readable(processor, "U")
    assert parts.subscription_groups.forbidden_table == {"g": {"T": 4}}
    assert readable(processor, "T", True)
    assert parts.subscription_groups.forbidden_table == {}


def test_recorded_requests(processor):
    seen = 0
    for command, theirs in recorded(353, Header):
        ours = call(processor.process, command.header)
        # Clients that read no JSON headers get no remark at all from RocketMQ.
        assert ours._replace(remark=theirs.remark) == theirs
        seen += 1
    assert seen == 6


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (Header("h", "T", False), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h does not exist"),
        (Header("g", "V", False), ResponseCode.TOPIC_NOT_EXIST, "topic[V] not exist"),
        (Header("../up", "T", False), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("g", "a/b", False), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
    ],
)
def test_a_missing_name_is_rejected(parts, processor, wrong, code, named):
    found_code, remark = refusal(processor.process, wrong)
    assert found_code == code
    assert named in remark
    assert parts.subscription_groups.forbidden_table == {}
