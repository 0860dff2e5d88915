"""Figures read from the Java driver's output, and errors in it."""

import pytest

from bench.load import Outcome, parse


def test_the_last_line_counts():
    outcome = parse('some log line\n{"rate": 10.5, "p50": 1.0, "p99": 2.0, "done": 21, "failed": 0}\n')

    assert outcome == Outcome(rate=10.5, p50=1.0, p99=2.0, done=21)
    assert outcome.trouble == ""


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
