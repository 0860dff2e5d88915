import asyncio

import pytest

from rocketbroker.broker.broker_stats_manager import MOST_BY_GROUP, BrokerStatsManager
from tests.support.fakes import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def stats(clock):
    return BrokerStatsManager(clock, "C")


def run(clock, stats, seconds, action=lambda: None):
    async def ticks():
        for _ in range(seconds // 10):
            clock.advance(10)
            action()
            await stats.sample()

    asyncio.run(ticks())


def test_nothing_is_known_of_what_was_never_counted(stats):
    stats.topic_put("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("TOPIC_PUT_NUMS", "Nope") is None
    assert stats.view("NO_SUCH_NAME", "T") is None
    assert stats.view("BROKER_PUT_NUMS", "C") is None


def test_windows(clock, stats):
    item = stats.topic_put("T")
    run(clock, stats, 3600, lambda: item.add(20, 1000))
    nums = stats.view("TOPIC_PUT_NUMS", "T")
    assert nums.stats_minute == (120, 2.0, 20.0)
    assert nums.stats_hour == (7200, 2.0, 20.0)
    assert nums.stats_day == (7200, 2.0, 20.0)
    assert stats.view("TOPIC_PUT_SIZE", "T").stats_minute == (6000, 100.0, 1000.0)
    run(clock, stats, 120)
    assert stats.view("TOPIC_PUT_NUMS", "T").stats_minute == (0, 0.0, 0.0)
    assert stats.view("TOPIC_PUT_NUMS", "T").stats_day.sum == 7200
    run(clock, stats, 3600 * 25)
    assert stats.view("TOPIC_PUT_NUMS", "T").stats_day.sum == 0


def test_values_reach_up_to_now(clock, stats):
    stats.group_get("T", "g").add(3, 30)
    clock.advance(2)
    assert stats.view("GROUP_GET_NUMS", "T@g").stats_minute == (3, 1.5, 3.0)
    assert stats.view("BROKER_GET_NUMS", "C").stats_minute == (3, 1.5, 3.0)


@pytest.mark.parametrize(("window", "length_s", "interval_s"), [(0, 60, 10), (1, 3_600, 600), (2, 86_400, 3_600)])
def test_a_window_begins_its_length_ago(clock, stats, window, length_s, interval_s):
    item = stats.topic_put("T")
    item.add(1000, 5000)
    run(clock, stats, length_s)
    # The sample of the begin is the one before the messages.
    assert stats.view("TOPIC_PUT_NUMS", "T")[window] == (1000, pytest.approx(1000 / length_s), 1000.0)
    # Between two samples the messages leave the window in proportion to the time.
    clock.advance(interval_s * 0.3)
    assert stats.view("TOPIC_PUT_NUMS", "T")[window] == (700, pytest.approx(700 / length_s), pytest.approx(1000.0))
    run(clock, stats, interval_s)
    assert stats.view("TOPIC_PUT_NUMS", "T")[window] == (0, 0.0, 0.0)


def test_a_steady_rate_is_the_same_in_all_windows_at_any_time(clock, stats):
    item = stats.topic_put("T")
    run(clock, stats, 90_000, lambda: item.add(20, 1000))
    for wait_s in (0, 1, 4, 4):
        clock.advance(wait_s)
        item.add(2 * wait_s, 100 * wait_s, times=0)
        nums, size = stats.view("TOPIC_PUT_NUMS", "T"), stats.view("TOPIC_PUT_SIZE", "T")
        assert [each.sum for each in nums] == [120, 7_200, 172_800]
        assert [each.tps for each in nums] == pytest.approx([2.0] * 3)
        assert [each.tps for each in size] == pytest.approx([100.0] * 3)


def test_a_late_sample_is_weighed_by_its_time(clock, stats):
    item = stats.topic_put("T")
    clock.advance(40)
    item.add(40, 400)
    asyncio.run(stats.sample())
    clock.advance(40)
    assert stats.view("TOPIC_PUT_NUMS", "T").stats_minute == (20, pytest.approx(1 / 3), pytest.approx(40.0))


def test_a_clock_that_went_back_gives_no_negative_rate(clock, stats):
    item = stats.topic_put("T")
    run(clock, stats, 120, lambda: item.add(20, 1000))
    clock.advance(-600)
    for snapshot in stats.view("TOPIC_PUT_NUMS", "T"):
        assert snapshot.sum >= 0
        assert snapshot.tps == 0.0


def test_runtime_info(clock, stats):
    put, got = stats.topic_put("T"), stats.group_get("T", "g")
    assert stats.runtime_info()["putTps"] == "0.0 0.0 0.0"

    def minute_of_work():
        put.add(100, 5000)
        got.add(50, 2500)
        got.misses += 10

    run(clock, stats, 600, minute_of_work)
    info = stats.runtime_info()
    assert info["putTps"] == "10.0 10.0 10.0"
    assert info["getTransferredTps"] == "5.0 5.0 5.0"
    assert info["getFoundTps"] == "0.1 0.1 0.1"
    assert info["getMissTps"] == "1.0 1.0 1.0"
    assert info["getTotalTps"] == "1.1 1.1 1.1"
    assert (info["putMessageTimesTotal"], info["putMessageAverageSize"]) == ("6000", "50.0")
    run(clock, stats, 540)
    rates = [float(rate) for rate in stats.runtime_info()["putTps"].split(" ")]
    assert rates == [0.0, 0.0, 1.0]


def test_totals_of_days(clock, stats):
    put, got = stats.topic_put("T"), stats.group_get("T", "g")
    put.add(5, 50)
    got.add(3, 30)
    run(clock, stats, 86_400)
    put.add(7, 70)
    got.add(1, 10)
    assert days(stats) == {
        "msgPutTotalYesterdayMorning": "0",
        "msgPutTotalTodayMorning": "5",
        "msgPutTotalTodayNow": "12",
        "msgGetTotalYesterdayMorning": "0",
        "msgGetTotalTodayMorning": "3",
        "msgGetTotalTodayNow": "4",
    }
    run(clock, stats, 86_400)
    got.add(2, 20)
    assert days(stats) == {
        "msgPutTotalYesterdayMorning": "5",
        "msgPutTotalTodayMorning": "12",
        "msgPutTotalTodayNow": "12",
        "msgGetTotalYesterdayMorning": "3",
        "msgGetTotalTodayMorning": "4",
        "msgGetTotalTodayNow": "6",
    }


def days(stats):
    return {key: value for key, value in stats.runtime_info().items() if key.startswith("msg")}


def test_messages_that_the_store_refuses_are_counted(stats):
    stats.topic_put("T").misses += 2
    stats.topic_put("U").misses += 1
    stats.group_get("T", "g").misses += 5
    assert stats.runtime_info()["putMessageFailedTimes"] == "3"


def test_deleted_names_restart_and_totals_stay(clock, stats):
    item = stats.topic_put("T")
    item.add(5, 50)
    stats.topic_put("TT").add(1, 1)
    stats.group_get("T", "g").add(2, 20)
    stats.group_get("TT", "g").add(3, 30)
    stats.send_back("T", "g").add(1, 1)
    stats.remove_topic("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@g") is None
    assert stats.view("SNDBCK_PUT_NUMS", "T@g") is None
    assert stats.view("GROUP_GET_NUMS", "TT@g").stats_day.sum == 3
    assert stats.runtime_info()["putMessageTimesTotal"] == "6"
    # Who kept the item still counts for the name when the topic is created again.
    item.add(1, 10)
    assert stats.view("TOPIC_PUT_NUMS", "T").stats_day.sum == 1
    stats.remove_group("g")
    assert stats.view("GROUP_GET_NUMS", "TT@g") is None
    assert stats.runtime_info()["msgGetTotalTodayNow"] == "5"


def test_groups_that_were_idle_for_a_day_are_forgotten_and_totals_stay(clock, stats):
    stats.group_get("T", "idle").add(2, 20)
    stats.send_back("T", "idle").add(1, 10)
    stats.group_get("T", "busy").add(1, 10)

    async def pass_hours() -> None:
        for tick in range(1, 25 * 360 + 1):
            clock.advance(10)
            stats.group_get("T", "busy").add(1, 10)
            await stats.sample()
            if tick % 360 == 0:
                stats.forget_idle()

    asyncio.run(pass_hours())
    assert stats.view("GROUP_GET_NUMS", "T@idle") is None
    assert stats.view("SNDBCK_PUT_NUMS", "T@idle") is None
    assert stats.view("GROUP_GET_NUMS", "T@busy") is not None
    assert stats.runtime_info()["msgGetTotalTodayNow"] == str(25 * 360 + 3)


def test_more_groups_than_can_be_distinguished_count_for_the_broker(stats):
    for number in range(MOST_BY_GROUP + 5):
        stats.group_get("T", f"g{number}").add(1, 10)
        stats.send_back("T", f"g{number}").add(1, 10)
    assert len(stats._gets) == len(stats._send_backs) == MOST_BY_GROUP
    assert stats.runtime_info()["msgGetTotalTodayNow"] == str(MOST_BY_GROUP + 5)
    stats.group_get("T", "g0").add(1, 10)
    assert stats._gets["T@g0"].nums == 2
