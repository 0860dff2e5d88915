"""Lag of the event loop."""

import time

from rocketbroker.metrics.loop_watch import LoopWatch
from tests.support.running import running
from tests.support.waiting import until


async def test_a_hold_of_the_loop_is_seen():
    async with running(LoopWatch()) as watch:
        await until(lambda: watch.lags.count > 0)
        time.sleep(0.1)  # noqa: ASYNC251 - holds the loop
        await until(lambda: watch.longest_s >= 0.07)

    assert sum(watch.lags.buckets[5:]) >= 1, "above 50 ms"


async def test_the_longest_hold_is_forgotten_after_two_windows():
    watch = LoopWatch()
    watch.late(3.0, 0.0)
    watch.late(0.5, 60.0)
    assert watch.longest_s == 3.0
    watch.late(0.25, 120.0)

    assert watch.longest_s == 0.5


async def test_both_are_metrics():
    watch = LoopWatch()
    watch.late(0.02, 0.0)

    assert [each.name for each in watch.families()] == [
        "rocketbroker_event_loop_lag_seconds",
        "rocketbroker_event_loop_longest_hold_seconds",
    ]
