import re

import pytest

from rocketbroker.app.mqadmin.statistics import sum_of_day
from rocketbroker.app.times import human_seconds
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList, TopicList
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script

TOPICS = ("T", "Idle", "%RETRY%CG", "%DLQ%CG")
COUNTED = {
    ("TOPIC_PUT_NUMS", "T"): BrokerStatsData(BrokerStatsItem(60, 1.0), BrokerStatsItem(500), BrokerStatsItem(0)),
    ("GROUP_GET_NUMS", "T@CG"): BrokerStatsData(BrokerStatsItem(30, 0.5), BrokerStatsItem(200), BrokerStatsItem(4000)),
}


def topics_of(names: tuple[str, ...]) -> dict[int, Script]:
    return {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _fields, _body: response(
            body=TopicList(list(names)).encode()
        )
    }


def counters(fields: dict[str, str], _body: bytes) -> Command:
    """Refuse what was never counted, as brokers do."""
    found = COUNTED.get((fields["statsName"], fields["statsKey"]))
    if found is None:
        return response(ResponseCode.SYSTEM_ERROR, f"The stats <{fields['statsName']}> not exist")
    return response(body=found.encode())


def progress(broker: str) -> ConsumeStats:
    offsets = {
        MessageQueue("T", broker, 0): OffsetWrapper(10, 7, 7, 1_000_000),
        MessageQueue("T", broker, 1): OffsetWrapper(4, 4, 4, 0),
    }
    return ConsumeStats(offsets, 1.5)


def broker(name: str) -> dict[int, Script]:
    stats = ConsumeStatsList([{"CG": [progress(name)]}], None, 3)
    return {
        RequestCode.VIEW_BROKER_STATS_DATA: counters,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda fields, _body: response(
            body=GroupList(["CG"] if fields["topic"] == "T" else []).encode()
        ),
        RequestCode.GET_CONSUME_STATS: lambda _fields, _body: response(body=progress(name).encode()),
        RequestCode.GET_BROKER_CONSUME_STATS: lambda _fields, _body: response(body=stats.encode()),
    }


def test_a_broker_that_has_not_run_for_a_day_is_counted_by_the_hour_or_minute():
    minute, hour, day = BrokerStatsItem(1), BrokerStatsItem(10), BrokerStatsItem(100)
    nothing = BrokerStatsItem()
    assert sum_of_day(BrokerStatsData(minute, hour, day)) == 100
    assert sum_of_day(BrokerStatsData(minute, hour, nothing)) == 10
    assert sum_of_day(BrokerStatsData(minute, nothing, nothing)) == 1


async def test_rates_of_all_brokers_are_added_up():
    async with admin_stage({"a": broker("a"), "b": broker("b")}, [topics_of(TOPICS)], TOPICS) as stage:
        head, *rows = (await stage.call("statsAll")).rows
        active = (await stage.call("statsAll", "-a")).rows[1:]
        found = await stage.json("statsAll", "-t", "T")

    assert head == [
        "#Topic",
        "#Consumer",
        "Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    ]
    group_row = ["T", "CG", "6", "2.00", "1.00", "1000", "8000"]
    assert rows == [group_row, ["Idle", "0", "0.00", "0", "NO_CONSUMER"]]
    assert active == [group_row]
    assert found["topics"] == [
        {
            "topic": "T",
            "consumerGroup": "CG",
            "accumulation": 6,
            "inTps": 2.0,
            "outTps": 1.0,
            "inMsg24Hour": 1000,
            "outMsg24Hour": 8000,
            "error": None,
        }
    ]


async def test_a_group_without_figures_has_zeros():
    new: dict[int, Script] = {
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda _fields, _body: response(body=GroupList(["New"]).encode()),
        RequestCode.VIEW_BROKER_STATS_DATA: lambda fields, _body: counters(fields | {"statsKey": "none"}, b""),
        RequestCode.GET_CONSUME_STATS: lambda _fields, _body: response(body=ConsumeStats().encode()),
    }
    async with admin_stage({"a": new}, [topics_of(("T",))]) as stage:
        found = await stage.json("statsAll")
    (row,) = found["topics"]
    assert (row["consumerGroup"], row["accumulation"], row["inTps"], row["outMsg24Hour"]) == ("New", 0, 0.0, 0)


async def test_a_refused_counter_is_an_error_and_no_zero():
    refusing = broker("a")
    refusing[RequestCode.VIEW_BROKER_STATS_DATA] = lambda _fields, _body: response(ResponseCode.NO_PERMISSION, "no")
    async with admin_stage({"a": refusing}, [topics_of(TOPICS)], TOPICS) as stage:
        done = await stage.call("statsAll", "-t", "T")
        (row,) = (await stage.failed_json("statsAll", "-t", "T", "-a"))["topics"]
    assert done.rows[1] == ["T", "-", "-", "-", "-", "-"]
    assert done.err.startswith("mqadmin: T: CODE: 16 DESC: no")
    assert (row["inTps"], row["error"].startswith("CODE: 16")) == (None, True)


@pytest.mark.parametrize("command", ["statsAll", "topicList -c"])
async def test_a_dead_broker_costs_only_its_topics(command: str):
    async with admin_stage({"a": broker("a")}, [topics_of(("T",))], ("T",)) as stage:
        await stage.brokers["a"].stop()
        (row,) = (await stage.failed_json(*command.split()))["topics"]
    assert (row["topic"], row["error"].startswith("connect to")) == ("T", True)


async def test_an_unknown_topic_is_an_error():
    async with admin_stage({"a": broker("a")}, [topics_of(TOPICS)], TOPICS) as stage:
        done = await stage.call("statsAll", "-t", "No")
    assert (done.code, done.err) == (1, "mqadmin: there is no topic 'No'; mqadmin topicList lists the topics\n")


@pytest.mark.long
async def test_ten_thousand_topics_are_shown_in_order_by_one_request():
    names = tuple(f"T{number:05}" for number in range(10_000))
    server = broker("a")
    server[RequestCode.QUERY_TOPIC_CONSUME_BY_WHO] = lambda _fields, _body: response(body=GroupList([]).encode())
    async with admin_stage({"a": server}, [topics_of(names)], names) as stage:
        rows = (await stage.call("topicList")).rows
        by_cluster = (await stage.call("topicList", "-c")).rows[1:]

    assert [row[0] for row in rows] == list(names)
    assert [row[1] for row in by_cluster] == list(names)
    assert len(stage.names[0].of(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == 2


async def test_progress_is_shown_from_a_backlog_on_for_queues_with_messages():
    async with admin_stage({"a": broker("a")}) as stage:
        done = await stage.call("brokerConsumeStats", "-b", stage.address("a"))
        none = await stage.json("brokerConsumeStats", "-b", stage.address("a"), "-l", "4")
        asked = stage.brokers["a"].of(RequestCode.GET_BROKER_CONSUME_STATS)

    head, row, _, total = done.rows
    assert head[0] == "#Topic"
    assert row == ["T", "CG", "a", "0", "10", "7", "3", *human_seconds(1_000_000).split()]
    assert total == ["Diff", "Total:", "3"]
    assert none == {"brokerAddr": stage.address("a"), "queues": [], "diffTotal": 3}
    assert [each.fields["isOrder"] for each in asked] == ["false", "false"]


async def test_the_limit_for_the_answer_is_kept():
    silent: dict[int, Script] = {RequestCode.GET_BROKER_CONSUME_STATS: lambda _fields, _body: None}
    async with admin_stage({"a": silent}) as stage:
        done = await stage.call("brokerConsumeStats", "-b", stage.address("a"), "-t", "300")
    assert done.code == 1
    within = re.search(r"within (\S+) s", done.err)
    assert within is not None, done.err
    assert float(within[1]) <= 0.3, "less what connecting took"
