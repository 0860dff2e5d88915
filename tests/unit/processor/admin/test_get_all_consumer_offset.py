from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.headers.message import UpdateConsumerOffsetRequestHeader
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
    assert "slaveCommitTable" not in body


async def test_a_slave_answers_the_offsets_that_were_committed_at_it(parts, encoder):
    parts.offsets.commit("G", "T", 0, 4)
    parts.offsets.keep_commits()
    processor = GetAllConsumerOffsetProcessor(parts.offsets, encoder)
    assert (await call_async(processor.process)).body["slaveCommitTable"] == {}
    parts.offsets.commit("G", "T", 1, 7)
    assert (await call_async(processor.process)).body["slaveCommitTable"] == {"T@G": {1: 7}}
