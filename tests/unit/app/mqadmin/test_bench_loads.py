"""Meters and latencies of loads."""

import asyncio
import random

import pytest

from rocketbroker.app.mqadmin.bench_loads import FIGURES, Latencies, Load, Meter


def test_percentiles_are_within_one_percent_of_the_times():
    latencies = Latencies()
    times = list(range(1, 1001))
    random.Random(3).shuffle(times)
    for each in times:
        latencies.add(each / 1000)
    figures = latencies.figures()
    assert tuple(figures) == FIGURES
    assert figures == pytest.approx({"p50": 500, "p95": 950, "p99": 990, "p99.9": 999, "max": 1000}, rel=0.01)
    assert figures["max"] == 1000


def test_no_percentile_exceeds_the_longest_time():
    latencies = Latencies()
    latencies.add(0.01)
    assert max(latencies.figures().values()) == latencies.figures()["max"] == 10


def test_a_load_without_requests_has_no_latencies():
    assert Latencies().figures() == {}


def test_a_load_ends_after_its_messages():
    meter = Meter(5, 3600, asyncio.Event())
    assert [meter.take(2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_load_ends_after_its_duration():
    assert Meter(None, 0, asyncio.Event()).take() == 0


def test_a_load_ends_when_it_is_stopped():
    stop = asyncio.Event()
    meter = Meter(None, 3600, stop)
    assert meter.take() == 1
    stop.set()
    assert meter.take() == 0


def test_an_outcome_has_rates_and_the_first_error():
    meter = Meter(None, 3600, asyncio.Event())
    meter.add(3, 3 << 20, 0.1)
    meter.fail(1, ValueError("first"))
    meter.fail(1, ValueError("second"))
    outcome = meter.outcome(Load.BATCH)
    assert (outcome.load, outcome.messages, outcome.failed, outcome.error) == (Load.BATCH, 3, 2, "first")
    assert outcome.rate == pytest.approx(outcome.mib_per_second, rel=0.01)
    assert meter.outcome(Load.BATCH).seconds == outcome.seconds, "the end was kept"


def test_what_a_pull_did_not_bring_is_pulled_later():
    meter = Meter(32, 3600, asyncio.Event())
    assert (meter.take(32), meter.take(32)) == (32, 0)
    meter.give_back(31)
    assert meter.take(32) == 31


def test_the_time_of_a_failed_send_counts():
    meter = Meter(None, 3600, asyncio.Event())
    meter.add(1, 1, 0.001)
    meter.fail(1, ValueError("timeout"), 3.0)
    assert meter.outcome(Load.SYNC).latency_ms["max"] == 3000
