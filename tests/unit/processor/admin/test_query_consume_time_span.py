import time

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import QueryConsumeTimeSpanRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.query_consume_time_span import QueryConsumeTimeSpanProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message


@pytest.fixture
def processor(parts, store, encoder):
    return QueryConsumeTimeSpanProcessor(
        "broker-a", parts.topic_configs, parts.offsets, store.queues, store.queries, parts.clock, encoder
    )


@pytest.fixture
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def put_at(parts, store, queue_id, time_ms):
    parts.clock.advance((time_ms - parts.clock.time_ms()) / 1000)
    store.appender.put_message(message(topic="GoldenTopic", queue_id=queue_id))


@pytest.mark.usefixtures("utc")
async def test_recorded_answers(parts, store, processor):
    parts.topic_configs.update(TopicConfig("GoldenTopic", 4, 4))
    late = 0
    for command, theirs in recorded(303, QueryConsumeTimeSpanRequestHeader):
        await store.deletion.delete_topics({"GoldenTopic"})
        for span in theirs.body["consumeTimeSpanSet"]:
            queue_id = span["messageQueue"]["queueId"]
            times = [span["minTimeStamp"], span["consumeTimeStamp"]]
            if span["delayTime"]:
                times += [span["consumeTimeStamp"] + 1, span["maxTimeStamp"]]
                late += 1
            for each in times:
                put_at(parts, store, queue_id, each)
            parts.offsets.commit("CG_Live", "GoldenTopic", queue_id, 2)
        store.appender.dispatch()
        now = max(span["maxTimeStamp"] for span in theirs.body["consumeTimeSpanSet"]) + 5
        parts.clock.advance((now - parts.clock.time_ms()) / 1000)

        ours = await call_async(processor.process, command.header)

        for mine, span in zip(ours.body["consumeTimeSpanSet"], theirs.body["consumeTimeSpanSet"], strict=True):
            waits = now - span["consumeTimeStamp"] - 1 if span["delayTime"] else 0
            assert mine.pop("delayTime") == waits
            span.pop("delayTime")
        assert ours == theirs
    assert late


@pytest.mark.usefixtures("utc")
async def test_queue_without_messages_and_group_without_offset(parts, store, processor):
    parts.topic_configs.update(TopicConfig("GoldenTopic", 2, 2))
    put_at(parts, store, 1, parts.clock.time_ms())
    store.appender.dispatch()
    stored = parts.clock.time_ms()
    parts.clock.advance(2)
    answer = await call_async(processor.process, QueryConsumeTimeSpanRequestHeader("GoldenTopic", "G"))
    empty, waiting = answer.body["consumeTimeSpanSet"]
    assert {empty[key] for key in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")} == {-1}
    assert empty["delayTime"] == 0
    assert empty["minTimeStampStr"] == "1969-12-31#23:59:59:999"
    assert {waiting[key] for key in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")} == {stored}
    assert waiting["delayTime"] == 2000


async def test_unknown_topic_and_bad_names(processor):
    answer = await refusal_async(processor.process, QueryConsumeTimeSpanRequestHeader("Nope", "G"))
    assert answer == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nope] not exist")
    assert (await refusal_async(processor.process, QueryConsumeTimeSpanRequestHeader("../up", "G")))[0] == 29
    assert (await refusal_async(processor.process, QueryConsumeTimeSpanRequestHeader("T", "../up")))[0] == 29
