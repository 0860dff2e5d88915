import pytest

from rocketbroker.codec.remoting.headers.admin import QueryTopicsByConsumerRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.query_topics_by_consumer import QueryTopicsByConsumerProcessor
from tests.support.processor_calls import call, recorded, refusal


def test_recorded_requests(parts):
    config = BrokerConfig(broker_ip1="127.0.0.1", listen_port=30911)
    processor = QueryTopicsByConsumerProcessor(config, parts.offsets)
    parts.offsets.commit("CG_Other", "T", 0, 1)
    seen = 0
    for command, theirs in recorded(343, QueryTopicsByConsumerRequestHeader):
        for topic in theirs.body["topicList"]:
            parts.offsets.commit(command.header.group, topic, 0, 1)
        theirs.body["topicList"].sort()
        assert call(processor.process, command.header) == theirs
        seen += 1
    assert seen == 3


@pytest.mark.parametrize("group", ["../up", ""])
def test_bad_names_are_named(parts, group):
    processor = QueryTopicsByConsumerProcessor(parts.config, parts.offsets)
    code, remark = refusal(processor.process, QueryTopicsByConsumerRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
