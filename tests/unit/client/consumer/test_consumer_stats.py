"""Rates of a consumer."""

import pytest

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from tests.support.fakes import FakeClock


def test_rates_are_of_the_last_minute_and_failures_of_the_last_hour():
    clock = FakeClock()
    stats = ConsumerStats(clock)
    stats.add_pull("T", 0.010, 30)
    stats.add_pull("T", 0.030, 30)
    for _ in range(6):
        stats.add_consumed("T", clock.monotonic() - 0.005, failed=False)
    stats.add_consumed("T", clock.monotonic() - 1.0, failed=True)
    status = stats.status()["T"]
    assert (status.pull_rt, status.pull_tps) == (20.0, 1.0)
    assert status.consume_rt == pytest.approx(5.0)
    assert (status.consume_ok_tps, status.consume_failed_msgs) == (0.1, 1)
    clock.advance(100)
    status = stats.status()["T"]
    assert (status.pull_rt, status.pull_tps, status.consume_ok_tps, status.consume_failed_msgs) == (0, 0, 0, 1)
    clock.advance(4000)
    assert stats.status()["T"].consume_failed_msgs == 0
