"""Lines of stats.log and watermark.log."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketbroker.app.log_files import FILE_ONLY, STATS_LOGGER, WATERMARK_LOGGER
from rocketbroker.app.stats_log import StatsLog
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from tests.support.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def stats(clock: FakeClock) -> BrokerStatsManager:
    return BrokerStatsManager(clock, "C")


@pytest.fixture
def log(stats: BrokerStatsManager) -> StatsLog:
    store = SimpleNamespace(
        commit_log=SimpleNamespace(max_offset=1_000),
        appender=SimpleNamespace(dispatched_offset=900),
        flusher=SimpleNamespace(flushed_offset=700),
    )
    return StatsLog(stats, BrokerFastFailure(BrokerConfig()), cast("Any", store))


async def test_each_minute_the_counters_of_that_minute_are_logged(
    log: StatsLog, stats: BrokerStatsManager, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, STATS_LOGGER)
    stats.topic_put("idle")
    stats.topic_put("T").add(6, 600, times=3)
    clock.advance(60)

    await log.minute()

    assert [record.getMessage() for record in caplog.records] == [
        "[TOPIC_PUT_NUMS] [T] Stats In One Minute, SUM: 6 TPS: 0.10 AVGPT: 2.00",
        "[TOPIC_PUT_SIZE] [T] Stats In One Minute, SUM: 600 TPS: 10.00 AVGPT: 200.00",
        "[BROKER_PUT_NUMS] [C] Stats In One Minute, SUM: 6 TPS: 0.10 AVGPT: 2.00",
    ]


async def test_hours_and_days_are_logged_in_their_turn(
    log: StatsLog, stats: BrokerStatsManager, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, STATS_LOGGER)
    stats.topic_put("T").add(1, 100)

    for _ in range(24 * 60):
        await log.minute()

    windows = [text.split(",")[0] for text in caplog.messages if "TOPIC_PUT_NUMS" in text]
    assert [windows.count(f"[TOPIC_PUT_NUMS] [T] Stats In One {each}") for each in ("Minute", "Hour", "Day")] == [
        24 * 60,
        24,
        1,
    ]


def test_the_watermark_names_what_waits(log: StatsLog, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, WATERMARK_LOGGER)

    log.watermark()

    assert caplog.messages == [
        "[WATERMARK] Send Queue Size: 0 SlowTimeMills: 0; not in queues: 100 bytes, not on disk: 300 bytes"
    ]


@pytest.mark.parametrize("on", [True, False])
async def test_tasks_exist_only_while_there_are_files(log: StatsLog, monkeypatch: pytest.MonkeyPatch, on: bool):
    for name in FILE_ONLY:
        monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO if on else logging.CRITICAL)
        logging.getLogger(name).manager._clear_cache()  # type: ignore[attr-defined]
    await log.start()

    assert len(log._tasks) == (2 if on else 0)
    await log.stop()
