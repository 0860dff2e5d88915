import asyncio

import pytest

from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.fastjson import ObjectKey
from rocketbroker.codec.remoting.headers.admin import GetConsumeStatsRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector
from rocketbroker.processor.admin.get_consume_stats import GetConsumeStatsProcessor
from rocketbroker.processor.support import loop_share
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message


@pytest.fixture
def processor(parts, store, encoder):
    collector = ConsumeStatsCollector(
        "broker-a",
        parts.topic_configs,
        parts.offsets,
        parts.consumers,
        store.queues,
        store.queries,
        parts.stats,
        encoder,
    )
    return GetConsumeStatsProcessor(collector)


def queue(topic, queue_id):
    return ObjectKey.of(brokerName="broker-a", queueId=queue_id, topic=topic)


def topics_in(answer):
    return {key.as_dict()["topic"] for key in answer.body["offsetTable"]}


async def test_offsets_of_group_and_queue(parts, store, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=2, write_queue_nums=4))
    for _ in range(3):
        parts.clock.advance(1)
        store.appender.put_message(message(topic="T", queue_id=1))
    store.appender.dispatch()
    parts.offsets.commit("G", "T", 1, 2)
    parts.offsets.commit_pull("G", "T", 1, 3)
    parts.stats.group_get("T", "G").add(3, 300)
    parts.clock.advance(10)
    parts.stats.sample()

    answer = await call_async(processor.process, GetConsumeStatsRequestHeader("G"))

    empty = {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
    last = parts.clock.time_ms() - 11_000
    row = {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": last, "pullOffset": 3}
    assert answer.body["offsetTable"] == {queue("T", 0): empty, queue("T", 1): row}
    assert answer.body["consumeTps"] == parts.stats.view("GROUP_GET_NUMS", "T@G").stats_minute.tps > 0


async def test_only_existing_subscribed_topics_are_cloned(parts, processor, consumer):
    for topic in ("A", "B", "C"):
        parts.topic_configs.update(TopicConfig(topic, 1, 1))
        parts.offsets.commit("G", topic, 0, 1)
    parts.offsets.commit("G", "Deleted", 0, 1)
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G"))) == {"A", "B", "C"}
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G", "B"))) == {"B"}
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G", " "))) == {"A", "B", "C"}
    consumer("G", "client", "A", "C")
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G"))) == {"A", "C"}
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G", "B"))) == set()
    assert topics_in(await call_async(processor.process, GetConsumeStatsRequestHeader("G", "A", "B;C;"))) == {"B", "C"}


async def test_a_group_that_has_committed_nothing_has_the_lag_of_its_subscription(parts, store, processor, consumer):
    for topic in ("T", "Other"):
        parts.topic_configs.update(TopicConfig(topic, 1, 1))
        store.appender.put_message(message(topic=topic, queue_id=0))
    store.appender.dispatch()
    consumer("G", "client", "T", "Missing")
    answer = await call_async(processor.process, GetConsumeStatsRequestHeader("G"))
    (row,) = answer.body["offsetTable"].values()
    assert topics_in(answer) == {"T"}
    assert (row["brokerOffset"], row["consumerOffset"]) == (1, 0)
    consumer("Broadcasts", "client", "T", model=MessageModel.BROADCASTING)
    answer = await call_async(processor.process, GetConsumeStatsRequestHeader("Broadcasts"))
    assert answer.body["offsetTable"] == {}


async def test_recorded_answers(parts, store, processor):
    """Each recorded answer again, from offsets and messages as it tells of them."""
    seen = 0
    for command, theirs in recorded(208, GetConsumeStatsRequestHeader):
        group = command.header.consumer_group
        parts.offsets.remove_group(group)
        await store.deletion.delete_topics(set(store.queues.topics))
        rows = {tuple(sorted(key.as_dict().items())): row for key, row in theirs.body["offsetTable"].items()}
        if any(row["consumerOffset"] > row["brokerOffset"] for row in rows.values()):
            continue  # offsets of a topic that was created again since
        for row_key, row in rows.items():
            name = dict(row_key)
            topic, queue_id = name["topic"], name["queueId"]
            nums = max(dict(other)["queueId"] for other in rows if dict(other)["topic"] == topic) + 1
            parts.topic_configs.topics[topic] = TopicConfig(topic, nums, nums)
            for offset in range(row["brokerOffset"]):
                if offset == row["consumerOffset"] - 1:
                    parts.clock.advance((row["lastTimestamp"] - parts.clock.time_ms()) / 1000)
                store.appender.put_message(message(topic=topic, queue_id=queue_id))
            parts.offsets.commit(group, topic, queue_id, row["consumerOffset"])
            parts.offsets.commit_pull(group, topic, queue_id, row["pullOffset"])
        store.appender.dispatch()
        ours = await call_async(processor.process, command.header)
        # The rate is that of the last minute of the recording.
        assert ours.body.pop("consumeTps") == 0.0
        assert theirs.body.pop("consumeTps") >= 0.0
        assert ours == theirs
        seen += bool(rows)
    assert seen > 30


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (GetConsumeStatsRequestHeader("../up"), "The specified group: ../up"),
        (GetConsumeStatsRequestHeader("G", "../up"), "'../up'"),
        (GetConsumeStatsRequestHeader("G", None, "A;a/b"), "'a/b'"),
    ],
)
async def test_bad_names_are_named(processor, header, named):
    code, remark = await refusal_async(processor.process, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark


async def test_a_topic_that_is_named_often_is_looked_at_once(parts, store, processor, monkeypatch):
    parts.topic_configs.update(TopicConfig("Wide", 16_384, 16_384))
    looked_at = []

    def max_offset(topic, queue_id):
        looked_at.append((topic, queue_id))
        return 0

    monkeypatch.setattr(store.queues, "max_offset_in_queue", max_offset)
    answer = await call_async(processor.process, GetConsumeStatsRequestHeader("G", topic_list="Wide;" * 1_000))
    assert len(answer.body["offsetTable"]) == len(looked_at) == 16_384


async def test_more_queues_than_an_answer_may_have_are_rejected_before_they_are_looked_at(parts, store, processor):
    names = [f"Wide{number}" for number in range(5)]
    for name in names:
        parts.topic_configs.update(TopicConfig(name, 16_384, 16_384))
    code, remark = await refusal_async(processor.process, GetConsumeStatsRequestHeader("G", topic_list=";".join(names)))
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("maxEntriesPerAnswer: 81,920 entries exceed the limit of 65,536")


async def test_others_have_their_turn_meanwhile(parts, processor, monkeypatch):
    monkeypatch.setattr(loop_share, "HELD_S", 0.0)
    parts.topic_configs.update(TopicConfig("T", 100, 100))
    asked = asyncio.ensure_future(call_async(processor.process, GetConsumeStatsRequestHeader("G", "T")))
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 100
