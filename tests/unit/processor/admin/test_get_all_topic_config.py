from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.headers.admin import GetAllTopicConfigRequestHeader
from rocketbroker.processor.admin.get_all_topic_config import GetAllTopicConfigProcessor
from tests.support.processor_calls import call_async, recorded


def load(parts, body):
    """Create the topics that a recorded broker had."""
    wrapper = TopicConfigAndMappingSerializeWrapper.decode(fastjson.dumps(body))
    parts.topic_configs.topics = wrapper.topic_config_table
    parts.topic_configs.data_version = wrapper.data_version


async def test_recorded_tables_and_pages(parts, encoder):
    processor = GetAllTopicConfigProcessor(parts.topic_configs, encoder)
    whole = pages = 0
    for command, theirs in recorded(21, GetAllTopicConfigRequestHeader):
        total, size = int(theirs.fields["totalTopicNum"]), len(theirs.body["topicConfigTable"])
        if size == total:
            load(parts, theirs.body)
            whole += 1
        elif len(parts.topic_configs.topics) != total:
            continue  # a page of a table of which no whole was recorded just before
        else:
            version = TopicConfigAndMappingSerializeWrapper.decode(fastjson.dumps(theirs.body)).data_version
            parts.topic_configs.data_version = version
            pages += 1
        ours = await call_async(processor.process, command.header)
        # There are no static topics here, hence no version of theirs.
        ours.body["mappingDataVersion"] = theirs.body["mappingDataVersion"]
        theirs.body.setdefault("topicQueueMappingInfoMap", {})
        theirs.body["topicQueueMappingDetailMap"] = {}
        assert ours == theirs
    assert whole > 30
    assert pages > 0


async def test_whole_table_without_fields(parts, encoder):
    answer = await call_async(
        GetAllTopicConfigProcessor(parts.topic_configs, encoder).process, GetAllTopicConfigRequestHeader()
    )
    assert set(answer.body["topicConfigTable"]) == set(parts.topic_configs.topics)
    assert answer.fields == {"totalTopicNum": str(len(parts.topic_configs.topics))}
