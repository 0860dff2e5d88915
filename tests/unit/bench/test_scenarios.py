"""Loads are chosen by name, and a drain has something to read."""

from collections.abc import Iterable

import pytest

from bench.load import SCENARIOS, Scenario, chosen, warm_up


def names(only: str | None) -> list[str]:
    return [scenario.name for scenario in chosen(only)]


def test_all_are_run_when_none_is_named():
    loads = "sync64 sync1 sync64_4k async8 batch32 drain e2e200 sql92_send sql92"
    assert names(None) == loads.split()


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
        ("sql92", ["sql92_send", "sql92"]),
        ("sql92,drain", ["sql92_send", "sql92", "sync64", "drain"]),
    ],
)
def test_a_drain_comes_after_the_load_that_fills_its_topic(only: str, run: list[str]):
    assert names(only) == run


def test_an_unknown_name_is_rejected_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'sync2'.*sync64, sync1"):
        chosen("sync64,sync2")


def test_the_driver_receives_seconds_and_messages():
    assert SCENARIOS["sync64_4k"].command("127.0.0.1:9", 20, 0) == [
        "send", "127.0.0.1:9", "Sync64Large", "64", "4096", "20", "sync",
    ]  # fmt: skip
    assert SCENARIOS["drain"].command("127.0.0.1:9", 20, 700_000)[-2:] == ["400000", "60"]
    assert SCENARIOS["drain"].command("127.0.0.1:9", 20, 9)[-2] == "9"


@pytest.mark.parametrize("scenarios", [SCENARIOS.values(), warm_up([SCENARIOS["sql92"]])])
def test_what_reads_a_topic_comes_after_the_load_that_fills_it(scenarios: Iterable[Scenario]):
    before: dict[str, Scenario] = {}
    for scenario in scenarios:
        if scenario.reads:
            assert scenario.arguments[0] == before[scenario.reads].arguments[0]
        before[scenario.name] = scenario
    assert any(scenario.reads for scenario in before.values())


def test_a_filter_is_warmed_up_for_a_load_that_filters_alone():
    assert [scenario.name for scenario in warm_up([SCENARIOS["drain"]])][-2:] == ["warm_drain", "warm_deliver"]
    assert [scenario.name for scenario in warm_up([SCENARIOS["sql92"]])][-1] == "warm_sql92"


def test_one_of_a_hundred_messages_matches():
    command = SCENARIOS["sql92"].command("127.0.0.1:9", 20, 9_000_000)
    assert command == ["drain", "127.0.0.1:9", "Numbered", "bench_sql92", "4000000", "60", "n = 7", "100"]
    assert SCENARIOS["sql92_send"].arguments[-1] == "numbered:100"
