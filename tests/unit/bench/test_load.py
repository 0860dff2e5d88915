"""Loads are chosen by name, a drain has something to read; figures and errors of the Java driver's output."""

from collections.abc import Mapping

import pytest

from bench.load import POP_SCENARIOS, POP_WARM_UP, SCENARIOS, Outcome, Scenario, parse, scenarios, warm_up


def test_the_last_line_counts():
    outcome = parse('some log line\n{"rate": 10.5, "p50": 1.0, "p99": 2.0, "done": 21, "failed": 0}\n')

    assert outcome == Outcome(rate=10.5, p50=1.0, p99=2.0, done=21)
    assert outcome.trouble == ""
    assert outcome.figures(0.042, anon=7.0) == {"rate": 10.5, "p50": 1.0, "p99": 2.0, "cpu": 2000.0, "anon": 7.0}


@pytest.mark.parametrize("output", ["", "\n", "no JSON", "[1]", '{"unknown": 1}', "7"])
def test_other_output_is_shown(output: str):
    outcome = parse(output)

    assert repr(output) in outcome.trouble
    assert outcome.rate is None


@pytest.mark.parametrize(
    ("outcome", "trouble"),
    [
        (
            Outcome(rate=1.0, done=9, failed=2, error="MQClientException"),
            "2 sends failed, 9 did not: MQClientException",
        ),
        (Outcome(rate=1.0, done=8, expected=9), "8 of 9 messages were delivered"),
        (Outcome(rate=1.0, done=0), "no figure: 0 messages"),
        (Outcome(rate=1.0, done=9, found=1001.0), "the last message was found after 1001 ms, not within 1000"),
        (Outcome(rate=1.0, done=9, found=3.0), ""),
        (Outcome(done=5), "no figure: 5 messages"),
        (Outcome(error="not done after 9 s"), "not done after 9 s"),
        (Outcome(p50=1.0, done=9, expected=9), ""),
    ],
)
def test_failures_and_missing_messages_are_trouble(outcome: Outcome, trouble: str):
    assert outcome.trouble == trouble


@pytest.mark.parametrize(
    ("only", "run"),
    [
        (None, "sync64 sync1 sync64_4k async8 batch32 drain e2e200 sql92_send sql92"),
        ("e2e200, sync1", "e2e200 sync1"),
        ("drain", "sync64 drain"),
        ("sync1,drain", "sync1 sync64 drain"),
        ("drain,sync64", "sync64 drain"),
        ("sync64,sync1,drain", "sync64 sync1 drain"),
        ("sql92,drain", "sql92_send sql92 sync64 drain"),
    ],
)
def test_a_drain_comes_after_the_load_that_fills_its_topic(only: str | None, run: str):
    assert list(scenarios(only)) == run.split()


def test_pops_come_after_the_load_that_fills_their_topic():
    assert list(scenarios("pope2e,pop1ack", POP_SCENARIOS)) == ["pope2e", "pop_send", "pop1ack"]
    command = POP_SCENARIOS["pop1ack"].command("127.0.0.1:9", 20, 700_000)
    assert command == ["pop", "127.0.0.1:9", "Pop", "bench_pop1ack", "40000", "60", "8", "1"]


def test_the_driver_receives_seconds_messages_and_a_filter():
    def command(name: str, messages: int) -> list[str]:
        return SCENARIOS[name].command("127.0.0.1:9", 20, messages)

    assert command("sync64_4k", 0) == ["send", "127.0.0.1:9", "Sync64Large", "64", "4096", "20", "sync"]
    assert command("drain", 700_000)[-2:] == ["400000", "60"]
    assert command("drain", 9)[-2] == "9"
    drain = ["drain", "127.0.0.1:9", "Numbered", "bench_sql92", "4000000", "60", "n = 7", "100"]
    assert command("sql92", 9_000_000) == drain


@pytest.mark.parametrize("loads", [SCENARIOS, warm_up(["sql92"]), POP_SCENARIOS, POP_WARM_UP])
def test_what_reads_a_topic_comes_after_the_load_that_fills_it(loads: Mapping[str, Scenario]):
    topics: dict[str, str] = {}
    for name, scenario in loads.items():
        topics[name] = scenario.command("", 1, 1)[2]
        assert not scenario.reads or topics[name] == topics[scenario.reads]
    assert any(scenario.reads for scenario in loads.values())
