import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.get_min_offset import GetMinOffsetProcessor
from tests.support.processor_calls import call, recorded, refusal
from tests.support.stores import make_store, message


def test_start_of_a_queue_whose_first_messages_are_gone(store, parts):
    for _ in range(3):
        result = store.appender.put_message(message(topic="T"))
    store.appender.dispatch()
    processor = GetMinOffsetProcessor(store.queues, parts.topic_configs)
    assert call(processor.process, GetMinOffsetRequestHeader("T", 0)).fields == {"offset": "0"}
    store.queues.correct_min_offsets(result.physical_offset)
    assert call(processor.process, GetMinOffsetRequestHeader("T", 0)).fields == {"offset": "2"}
    assert call(processor.process, GetMinOffsetRequestHeader("T", 7)).fields == {"offset": "0"}


async def test_a_queue_of_batches_without_any(tmp_path, parts):
    parts.topic_configs.update(TopicConfig("B", 2, 2, attributes={"+queue.type": "BatchCQ"}))
    store = make_store(tmp_path / "batches", parts.clock, batch_topics=["B"])
    await store.start()
    processor = GetMinOffsetProcessor(store.queues, parts.topic_configs)
    assert call(processor.process, GetMinOffsetRequestHeader("B", 0)).fields == {"offset": "-1"}
    store.appender.put_message(message(topic="B"))
    store.appender.dispatch()
    assert call(processor.process, GetMinOffsetRequestHeader("B", 0)).fields == {"offset": "0"}
    assert call(processor.process, GetMinOffsetRequestHeader("B", 1)).fields == {"offset": "-1"}
    await store.stop()


def test_recorded_requests(store, parts):
    processor = GetMinOffsetProcessor(store.queues, parts.topic_configs)
    seen = 0
    for command, theirs in recorded(31):
        if theirs.code:
            continue  # a request without fields, which the transport answers
        header = GetMinOffsetRequestHeader(command.header["topic"], int(command.header["queueId"]))
        ours = call(processor.process, header)
        # Java's binary headers leave an empty remark out.
        assert (ours.code, ours.remark or None, ours.fields) == (theirs.code, theirs.remark or None, theirs.fields)
        seen += 1
    assert seen == 14


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named(store, parts, topic, queue_id):
    code, remark = refusal(
        GetMinOffsetProcessor(store.queues, parts.topic_configs).process, GetMinOffsetRequestHeader(topic, queue_id)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark
