from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.codec.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.view_broker_stats_data import ViewBrokerStatsDataProcessor
from tests.support.processor_calls import call, recorded


def test_counters_over_time(parts):
    item = parts.stats.topic_put("T")
    for _ in range(3):
        item.add(4, 400)
        parts.clock.advance(10)
        parts.stats.sample()
    processor = ViewBrokerStatsDataProcessor(parts.stats)
    put = call(processor.process, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T"))
    assert put.body["statsMinute"] == {"avgpt": 4.0, "sum": 12, "tps": 12 / 30}
    assert set(put.body) == {"statsMinute", "statsHour", "statsDay"}
    size = call(processor.process, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_SIZE", "T"))
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
        processor = ViewBrokerStatsDataProcessor(stats)
        if theirs.code:
            assert call(processor.process, command.header) == theirs
            unknown += 1
            continue
        count_one(stats, command.header.stats_name, command.header.stats_key)
        ours = call(processor.process, command.header)
        assert ours[:3] == theirs[:3]
        assert {window: set(values) for window, values in ours.body.items()} == {
            window: set(values) for window, values in theirs.body.items()
        }
        known += 1
    assert known > 5
    assert unknown > 50


def test_long_names_do_not_come_back_whole(parts):
    header = ViewBrokerStatsDataRequestHeader("x" * 100_000, "y" * 100_000)
    answer = call(ViewBrokerStatsDataProcessor(parts.stats).process, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(answer.remark or "") < 1000
