"""Loads are chosen by name, and a drain has something to read."""

import pytest

from bench.scenarios import SCENARIOS, chosen


def names(only: str | None) -> list[str]:
    return [scenario.name for scenario in chosen(only)]


def test_all_are_run_when_none_is_named():
    assert names(None) == ["sync64", "sync1", "sync64_4k", "async8", "batch32", "drain", "e2e200"]


@pytest.mark.parametrize(
    ("only", "run"),
    [
        ("sync1", ["sync1"]),
        ("e2e200, sync1", ["e2e200", "sync1"]),
        ("drain", ["sync64", "drain"]),
        ("sync1,drain", ["sync1", "sync64", "drain"]),
        ("drain,sync64", ["sync64", "drain"]),
        ("sync64,sync1,drain", ["sync64", "sync1", "drain"]),
        ("sync1,sync1", ["sync1"]),
    ],
)
def test_a_drain_comes_after_the_load_that_fills_its_topic(only: str, run: list[str]):
    assert names(only) == run


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'sync2'.*sync64, sync1"):
        chosen("sync64,sync2")


def test_the_driver_is_told_seconds_and_messages():
    assert SCENARIOS["sync64_4k"].command("127.0.0.1:9", 20, 0) == [
        "send", "127.0.0.1:9", "Sync64Large", "64", "4096", "20", "sync",
    ]  # fmt: skip
    assert SCENARIOS["drain"].command("127.0.0.1:9", 20, 700_000)[-2:] == ["400000", "60"]
    assert SCENARIOS["drain"].command("127.0.0.1:9", 20, 9)[-2] == "9"


def test_a_drain_reads_the_topic_that_sync64_fills():
    assert SCENARIOS["drain"].arguments[0] == SCENARIOS["sync64"].arguments[0]
