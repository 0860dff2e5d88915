import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import GetTopicConfigRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.get_topic_config import GetTopicConfigProcessor
from tests.support.processor_calls import call, recorded, refusal


def test_recorded_requests(parts):
    processor = GetTopicConfigProcessor(parts.topic_configs)
    codes = set()
    for command, theirs in recorded(351, GetTopicConfigRequestHeader):
        if theirs.body and "mappingDetail" in theirs.body:
            continue  # a static topic
        parts.topic_configs.topics.pop(command.header.topic, None)
        if theirs.body:
            fields = theirs.body
            parts.topic_configs.topics[command.header.topic] = TopicConfig(
                fields["topicName"],
                fields["readQueueNums"],
                fields["writeQueueNums"],
                fields["perm"],
                fields["topicFilterType"],
                fields["topicSysFlag"],
                fields["order"],
                fields["attributes"],
            )
        assert call(processor.process, command.header) == theirs
        codes.add(theirs.code)
    assert codes == {0, ResponseCode.TOPIC_NOT_EXIST}


@pytest.mark.parametrize("topic", ["../up", "a/b", ""])
def test_bad_names_are_named(parts, topic):
    code, remark = refusal(GetTopicConfigProcessor(parts.topic_configs).process, GetTopicConfigRequestHeader(topic))
    assert code == ResponseCode.INVALID_PARAMETER
    assert repr(topic) in remark
