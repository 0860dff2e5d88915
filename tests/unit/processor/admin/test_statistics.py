import asyncio
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint, PopQueues
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.fastjson import ObjectKey
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.statistics import StatisticsRequests
from rocketbroker.processor.support import long_answers
from tests.support.processor_calls import call, call_async, family, recorded, refusal_async
from tests.support.stores import message


@pytest.fixture
def processor(parts, store, encoder):
    return family(
        StatisticsRequests,
        parts,
        broker_name="broker-a",
        queues=store.queues,
        queries=store.queries,
        encoder=encoder,
        pops=PopQueues(parts.offsets, store.flusher),
        orders=ConsumerOrderInfoManager(
            Path("unwritten.json"), parts.clock, lambda _topic: 1, lambda _group: True, lambda _table: None
        ),
    )


async def test_messages_in_flight(parts, store, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=1, write_queue_nums=1))
    for _ in range(3):
        store.appender.put_message(message(topic="T", queue_id=0))
    store.appender.dispatch()
    popped = processor.pops.get("T", "G", 0)
    processor.pops.commit(popped, 2, None)
    popped.in_flight = 2
    popped.open[0, 1_000] = OpenCheckPoint(popped, 0, 1_000, 60_000, range(2), 0b11, 0)
    answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "T"))
    (row,) = answer.body["offsetTable"].values()
    assert row.items() >= {
        "consumerOffset": 2, "pullOffset": 4, "popInFlight": 2, "popReviveTime": 61_000, "popWaiting": 1
    }.items()  # fmt: skip


async def test_messages_in_flight_of_an_ordered_group(parts, store, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=1, write_queue_nums=1))
    for _ in range(6):
        store.appender.put_message(message(topic="T", queue_id=0))
    store.appender.dispatch()
    place, pop_time = ("T", "G", 0), parts.clock.time_ms()
    parts.offsets.commit("G", "T", 0, 0)

    async def shown(*names: str) -> tuple[int, ...]:
        answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "T"))
        (row,) = answer.body["offsetTable"].values()
        return tuple(row[name] for name in names)

    processor.orders.update(None, *place, pop_time, 60_000, range(4))
    names = "popInFlight", "popWaiting", "popReviveTime", "pullOffset"
    assert await shown(*names) == (4, 2, pop_time + 60_000, 4)
    # Offset 1 stays before the gap; the queue is blocked until the last of the messages is visible.
    for offset in (0, 2):
        following = processor.orders.commit_and_next(*place, offset, pop_time)
        parts.offsets.commit("G", "T", 0, following)
    processor.orders.update_next_visible_time(*place, 3, pop_time, pop_time + 90_000)
    assert await shown(*names) == (2, 2, pop_time + 90_000, 3)
    parts.clock.advance(61)
    assert await shown(*names) == (1, 3, pop_time + 90_000, 2)
    parts.clock.advance(30)
    assert await shown(*names[:2]) == (0, 4)


async def test_retry_topics_of_pop_are_shown_while_clients_are_there(parts, processor, consumer):
    for topic in ("A", "%RETRY%G_A", "%RETRY%G+A", "%RETRY%G_Other"):
        parts.topic_configs.update(TopicConfig(topic, 1, 1))
    for topic in ("%RETRY%G_A", "%RETRY%G_Other"):
        parts.offsets.commit("G", topic, 0, 0)
    consumer("G", "one", "A")
    answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))
    assert topics_in(answer) == {"A", "%RETRY%G_A"}


async def test_topics_that_are_popped_without_heartbeats_are_shown(parts, processor, consumer):
    for topic in ("A", "B", "%RETRY%G_B", "C"):
        parts.topic_configs.update(TopicConfig(topic, 1, 1))
        parts.offsets.commit("G", topic, 0, 0)
    consumer("G", "one", "A")
    parts.consumers.compensate_subscribe_data("G", "B", None, "*")

    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))) == {
        "A", "B", "%RETRY%G_B"
    }  # fmt: skip
    for topic, is_shown in (("B", True), ("%RETRY%G_B", True), ("C", False)):
        answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", topic))
        assert topics_in(answer) == ({topic} if is_shown else set())


async def test_a_row_for_each_queue_of_an_empty_topic(parts, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=1, write_queue_nums=3))
    answer = await call_async(processor.get_topic_stats_info, GetTopicStatsInfoRequestHeader("T"))
    row = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    keys = [ObjectKey.of(brokerName="broker-a", queueId=i, topic="T") for i in range(3)]
    assert answer == (0, None, {}, {"offsetTable": dict.fromkeys(keys, row), "topicPutTps": 0.0})


async def test_offsets_times_and_rate(parts, store, processor):
    parts.topic_configs.update(TopicConfig("T", read_queue_nums=2, write_queue_nums=2))
    for _ in range(3):
        parts.clock.advance(10)
        store.appender.put_message(message(topic="T", queue_id=1))
        parts.stats.topic_put("T").add(1, 100)
        await parts.stats.sample()
    store.appender.dispatch()
    table = (await call_async(processor.get_topic_stats_info, GetTopicStatsInfoRequestHeader("T"))).body
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
    ours = await call_async(processor.get_topic_stats_info, command.header)
    assert ours == theirs


async def test_unknown_topic(processor):
    answer = await refusal_async(processor.get_topic_stats_info, GetTopicStatsInfoRequestHeader("Nope"))
    assert answer == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nope] not exist")


async def test_bad_name(processor):
    code, remark = await refusal_async(processor.get_topic_stats_info, GetTopicStatsInfoRequestHeader("../up"))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "'../up'" in remark


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
    await parts.stats.sample()

    answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))

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
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))) == {
        "A",
        "B",
        "C",
    }
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "B"))) == {"B"}
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", " "))) == {
        "A",
        "B",
        "C",
    }
    consumer("G", "client", "A", "C")
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))) == {
        "A",
        "C",
    }
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "B"))) == set()
    assert topics_in(await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "A", "B;C;"))) == {
        "B",
        "C",
    }


async def test_a_group_that_has_committed_nothing_has_the_lag_of_its_subscription(parts, store, processor, consumer):
    for topic in ("T", "Other"):
        parts.topic_configs.update(TopicConfig(topic, 1, 1))
        store.appender.put_message(message(topic=topic, queue_id=0))
    store.appender.dispatch()
    consumer("G", "client", "T", "Missing")
    answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G"))
    (row,) = answer.body["offsetTable"].values()
    assert topics_in(answer) == {"T"}
    assert (row["brokerOffset"], row["consumerOffset"]) == (1, 0)
    consumer("Broadcasts", "client", "T", model=MessageModel.BROADCASTING)
    answer = await call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("Broadcasts"))
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
        ours = await call_async(processor.get_consume_stats, command.header)
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
    code, remark = await refusal_async(processor.get_consume_stats, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark


@pytest.mark.long
async def test_a_topic_that_is_named_often_is_looked_at_once(parts, store, processor, monkeypatch):
    parts.topic_configs.update(TopicConfig("Wide", 16_384, 16_384))
    looked_at = []

    def max_offset(topic, queue_id):
        looked_at.append((topic, queue_id))
        return 0

    monkeypatch.setattr(store.queues, "max_offset_in_queue", max_offset)
    answer = await call_async(
        processor.get_consume_stats, GetConsumeStatsRequestHeader("G", topic_list="Wide;" * 1_000)
    )
    assert len(answer.body["offsetTable"]) == len(looked_at) == 16_384


async def test_more_queues_than_an_answer_may_have_are_rejected_before_they_are_looked_at(parts, store, processor):
    names = [f"Wide{number}" for number in range(5)]
    for name in names:
        parts.topic_configs.update(TopicConfig(name, 16_384, 16_384))
    code, remark = await refusal_async(
        processor.get_consume_stats, GetConsumeStatsRequestHeader("G", topic_list=";".join(names))
    )
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("maxEntriesPerAnswer: 81,920 entries exceed the limit of 65,536")


async def test_others_have_their_turn_meanwhile(parts, processor, monkeypatch):
    monkeypatch.setattr(long_answers, "HELD_S", 0.0)
    parts.topic_configs.update(TopicConfig("T", 100, 100))
    asked = asyncio.ensure_future(call_async(processor.get_consume_stats, GetConsumeStatsRequestHeader("G", "T")))
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 100


@pytest.fixture
def filled(parts, store):
    parts.topic_configs.update(TopicConfig("T", 2, 2))
    parts.topic_configs.update(TopicConfig("Ordered", 1, 1, order=True))
    parts.subscription_groups.find("G")
    for _ in range(5):
        store.appender.put_message(message(topic="T", queue_id=1))
        store.appender.put_message(message(topic="Ordered", queue_id=0))
    store.appender.dispatch()
    parts.offsets.commit("G", "T", 1, 2)
    parts.offsets.commit_pull("G", "T", 1, 4)
    parts.offsets.commit("G", "Ordered", 0, 4)
    parts.offsets.commit("G", "Deleted", 0, 4)


def by_group(answer):
    return {group: stats for entry in answer.body["consumeStatsList"] for group, stats in entry.items()}


async def test_all_groups(parts, filled, processor):
    answer = await call_async(processor.get_broker_consume_stats, GetConsumeStatsInBrokerHeader(False))
    assert answer.body["brokerAddr"] == "127.0.0.1:10911"
    assert answer.body["totalDiff"] == 3 + 1
    assert answer.body["totalInflightDiff"] == 2
    groups = by_group(answer)
    assert set(groups) == set(parts.subscription_groups.groups)
    assert [len(stats["offsetTable"]) for stats in groups["G"]] == [1, 2]
    assert groups["TOOLS_CONSUMER"] == []


async def test_only_ordered_topics(filled, processor):
    answer = await call_async(processor.get_broker_consume_stats, GetConsumeStatsInBrokerHeader(True))
    ((row,),) = (stats["offsetTable"].values() for stats in by_group(answer)["G"])
    assert (row["brokerOffset"], row["consumerOffset"]) == (5, 4)
    assert answer.body["totalDiff"] == 1


async def test_recorded_answers_have_the_same_shape(filled, processor):
    for command, theirs in recorded(317, GetConsumeStatsInBrokerHeader):
        ours = await call_async(processor.get_broker_consume_stats, command.header)
        assert ours[:3] == theirs[:3]
        assert set(ours.body) == set(theirs.body)
        shapes = []
        for answer in (ours, theirs):
            stats = [stats for group in by_group(answer).values() for stats in group]
            rows = [row for each in stats for row in each["offsetTable"].values()]
            shapes.append(({frozenset(each) for each in stats}, {frozenset(row) for row in rows}))
            diffs = [row["brokerOffset"] - row["consumerOffset"] for row in rows]
            inflight = [row["pullOffset"] - row["consumerOffset"] for row in rows]
            assert (sum(diffs), sum(inflight)) == (answer.body["totalDiff"], answer.body["totalInflightDiff"])
        assert shapes[0] == shapes[1]


async def test_the_offsets_are_gone_through_once_for_all_groups(parts, processor, monkeypatch):
    parts.topic_configs.update(TopicConfig("T", 1, 1))
    for number in range(100):
        parts.subscription_groups.find(f"G{number}")
        parts.offsets.commit(f"G{number}", "T", 0, 1)
    topics_of = Mock(side_effect=parts.offsets.topics_of)
    monkeypatch.setattr(parts.offsets, "topics_of", topics_of)
    answer = await call_async(processor.get_broker_consume_stats, GetConsumeStatsInBrokerHeader(False))
    assert sum(len(stats) for stats in by_group(answer).values()) == 100
    assert topics_of.call_count == 0


async def test_a_group_that_has_committed_nothing_counts(parts, store, processor, consumer):
    parts.topic_configs.update(TopicConfig("T", 1, 1))
    parts.subscription_groups.find("New")
    store.appender.put_message(message(topic="T", queue_id=0))
    store.appender.dispatch()
    consumer("New", "client", "T")
    answer = await call_async(processor.get_broker_consume_stats, GetConsumeStatsInBrokerHeader(False))
    assert answer.body["totalDiff"] == 1
    assert len(by_group(answer)["New"]) == 1


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
async def test_recorded_answers_query_consume_time_span(parts, store, processor):
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

        ours = await call_async(processor.query_consume_time_span, command.header)

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
    answer = await call_async(processor.query_consume_time_span, QueryConsumeTimeSpanRequestHeader("GoldenTopic", "G"))
    empty, waiting = answer.body["consumeTimeSpanSet"]
    assert {empty[key] for key in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")} == {-1}
    assert empty["delayTime"] == 0
    assert empty["minTimeStampStr"] == "1969-12-31#23:59:59:999"
    assert {waiting[key] for key in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")} == {stored}
    assert waiting["delayTime"] == 2000


async def test_unknown_topic_and_bad_names(processor):
    answer = await refusal_async(processor.query_consume_time_span, QueryConsumeTimeSpanRequestHeader("Nope", "G"))
    assert answer == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nope] not exist")
    assert (await refusal_async(processor.query_consume_time_span, QueryConsumeTimeSpanRequestHeader("../up", "G")))[
        0
    ] == 29
    assert (await refusal_async(processor.query_consume_time_span, QueryConsumeTimeSpanRequestHeader("T", "../up")))[
        0
    ] == 29


def test_counters_over_time(parts):
    item = parts.stats.topic_put("T")
    for _ in range(3):
        item.add(4, 400)
        parts.clock.advance(10)
        asyncio.run(parts.stats.sample())
    processor = family(StatisticsRequests, parts)
    put = call(processor.view_broker_stats_data, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T"))
    assert put.body["statsMinute"] == {"avgpt": 4.0, "sum": 12, "tps": 12 / 30}
    assert set(put.body) == {"statsMinute", "statsHour", "statsDay"}
    size = call(processor.view_broker_stats_data, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_SIZE", "T"))
    assert size.body["statsMinute"]["sum"] == 1200


def count_one(stats, name, key):
    """Count something under a recorded name and key."""
    topic, _, group = key.partition("@")
    if name.startswith("TOPIC_PUT"):
        stats.topic_put(topic).add(1, 10)
    elif name == "BROKER_PUT_NUMS":
        stats.topic_put("T").add(1, 10)
    elif name == "BROKER_GET_NUMS":
        stats.group_get("T", "G").add(1, 10)
    else:
        stats.group_get(topic, group).add(1, 10)


def test_recorded_requests(parts):
    known = unknown = 0
    for command, theirs in recorded(315, ViewBrokerStatsDataRequestHeader):
        stats = BrokerStatsManager(parts.clock, "DefaultCluster")
        processor = family(StatisticsRequests, stats=stats)
        if theirs.code:
            assert call(processor.view_broker_stats_data, command.header) == theirs
            unknown += 1
            continue
        count_one(stats, command.header.stats_name, command.header.stats_key)
        ours = call(processor.view_broker_stats_data, command.header)
        assert ours[:3] == theirs[:3]
        assert {window: set(values) for window, values in ours.body.items()} == {
            window: set(values) for window, values in theirs.body.items()
        }
        known += 1
    assert known > 5
    assert unknown > 50


def test_long_names_do_not_come_back_whole(parts):
    header = ViewBrokerStatsDataRequestHeader("x" * 100_000, "y" * 100_000)
    answer = call(family(StatisticsRequests, parts).view_broker_stats_data, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(answer.remark or "") < 1000
