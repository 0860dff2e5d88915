import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.fastjson import ObjectKey
from rocketbroker.codec.remoting.headers.admin import GetTopicStatsInfoRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.get_topic_stats_info import GetTopicStatsInfoProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message


@pytest.fixture
def processor(parts, store, encoder):
    return GetTopicStatsInfoProcessor(
        "broker-a", parts.topic_configs, store.queues, store.queries, parts.stats, encoder
    )


async def test_a_row_for_each_queue_of_an_empty_topic(parts, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=1, write_queue_nums=3))
    answer = await call_async(processor.process, GetTopicStatsInfoRequestHeader("T"))
    row = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    keys = [ObjectKey.of(brokerName="broker-a", queueId=i, topic="T") for i in range(3)]
    assert answer == (0, None, {}, {"offsetTable": dict.fromkeys(keys, row), "topicPutTps": 0.0})


async def test_offsets_times_and_rate(parts, store, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=2, write_queue_nums=2))
    for _ in range(3):
        parts.clock.advance(10)
        store.appender.put_message(message(topic="T", queue_id=1))
        parts.stats.topic_put("T").add(1, 100)
        parts.stats.sample()
    store.appender.dispatch()
    table = (await call_async(processor.process, GetTopicStatsInfoRequestHeader("T"))).body
    key = ObjectKey.of(brokerName="broker-a", queueId=1, topic="T")
    assert table["offsetTable"][key] == {"lastUpdateTimestamp": parts.clock.time_ms(), "maxOffset": 3, "minOffset": 0}
    assert table["topicPutTps"] == parts.stats.view("TOPIC_PUT_NUMS", "T").stats_minute.tps > 0


async def test_recorded_answer(parts, store, processor):
    ((command, theirs),) = recorded(202, GetTopicStatsInfoRequestHeader)
    parts.topic_configs.update(TopicConfig("GoldenTopic", read_queue_nums=4, write_queue_nums=4))
    queues = {key.as_dict()["queueId"]: row for key, row in theirs.body["offsetTable"].items()}
    for queue_id, row in sorted(queues.items(), key=lambda item: item[1]["lastUpdateTimestamp"]):
        parts.clock.advance((row["lastUpdateTimestamp"] - parts.clock.time_ms()) / 1000)
        for _ in range(row["maxOffset"]):
            store.appender.put_message(message(topic="GoldenTopic", queue_id=queue_id))
    store.appender.dispatch()
    ours = await call_async(processor.process, command.header)
    assert ours == theirs


async def test_unknown_topic(processor):
    answer = await refusal_async(processor.process, GetTopicStatsInfoRequestHeader("Nope"))
    assert answer == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nope] not exist")


async def test_bad_name(processor):
    code, remark = await refusal_async(processor.process, GetTopicStatsInfoRequestHeader("../up"))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "'../up'" in remark
