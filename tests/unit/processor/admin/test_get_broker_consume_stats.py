from unittest.mock import Mock

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import GetConsumeStatsInBrokerHeader
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector
from rocketbroker.processor.admin.get_broker_consume_stats import GetBrokerConsumeStatsProcessor
from tests.support.processor_calls import call_async, recorded
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
    return GetBrokerConsumeStatsProcessor(parts.config, parts.subscription_groups, collector)


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
    answer = await call_async(processor.process, GetConsumeStatsInBrokerHeader(False))
    assert answer.body["brokerAddr"] == "127.0.0.1:10911"
    assert answer.body["totalDiff"] == 3 + 1
    assert answer.body["totalInflightDiff"] == 2
    groups = by_group(answer)
    assert set(groups) == set(parts.subscription_groups.groups)
    assert [len(stats["offsetTable"]) for stats in groups["G"]] == [1, 2]
    assert groups["TOOLS_CONSUMER"] == []


async def test_only_ordered_topics(filled, processor):
    answer = await call_async(processor.process, GetConsumeStatsInBrokerHeader(True))
    ((row,),) = (stats["offsetTable"].values() for stats in by_group(answer)["G"])
    assert (row["brokerOffset"], row["consumerOffset"]) == (5, 4)
    assert answer.body["totalDiff"] == 1


async def test_recorded_answers_have_the_same_shape(filled, processor):
    for command, theirs in recorded(317, GetConsumeStatsInBrokerHeader):
        ours = await call_async(processor.process, command.header)
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
    answer = await call_async(processor.process, GetConsumeStatsInBrokerHeader(False))
    assert sum(len(stats) for stats in by_group(answer).values()) == 100
    assert topics_of.call_count == 0


async def test_a_group_that_has_committed_nothing_counts(parts, store, processor, consumer):
    parts.topic_configs.update(TopicConfig("T", 1, 1))
    parts.subscription_groups.find("New")
    store.appender.put_message(message(topic="T", queue_id=0))
    store.appender.dispatch()
    consumer("New", "client", "T")
    answer = await call_async(processor.process, GetConsumeStatsInBrokerHeader(False))
    assert answer.body["totalDiff"] == 1
    assert len(by_group(answer)["New"]) == 1
