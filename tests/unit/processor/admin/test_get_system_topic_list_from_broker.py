from rocketbroker.processor.admin.get_system_topic_list_from_broker import GetSystemTopicListFromBrokerProcessor
from tests.support.processor_calls import call, recorded


def test_recorded_lists(parts):
    processor = GetSystemTopicListFromBrokerProcessor(parts.topic_configs)
    seen = 0
    for _, theirs in recorded(305):
        theirs.body["topicList"].sort()
        assert call(processor.process) == theirs
        seen += 1
    assert seen == 3
