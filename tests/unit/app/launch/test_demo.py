"""The demo finds out when something is wrong."""

from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from rocketbroker.app.launch.demo import TOPIC, Outcome, body_of, check, count_by_spark, disagreements, first_of, show
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.common.errors import RocketBrokerError

HOST = host_bytes("127.0.0.1", 1)


def message(number: int, *, body: bytes | None = None, run: str = "run", tag: str = "demo") -> MessageExt:
    properties = {"TAGS": tag, "KEYS": f"demo-{number}", "demoRun": run, "demoNumber": str(number)}
    record = encode_record(
        0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, body or body_of(number), TOPIC.encode(), encode_properties(properties)
    )
    return decode_record(record)


def outcome_of(sent: int, received: int, counted: int, before: int = 0) -> Outcome:
    return Outcome(
        Counter({0: before}), Counter({0: sent}), Counter({0: received}), Counter({0: counted}), 1.0, 1.0, 1.0
    )


def test_a_message_as_it_was_sent_is_no_problem():
    outcome = Outcome()
    assert check(message(7), "run", 10, outcome) == 7
    assert outcome.problems == []


@pytest.mark.parametrize(
    "wrong", [message(7, body=b"other"), message(7, tag="other"), message(10)], ids=["body", "tag", "number"]
)
def test_a_message_that_differs_is_a_problem(wrong: MessageExt):
    outcome = Outcome()
    check(wrong, "run", 10, outcome)
    assert len(outcome.problems) == 1


def test_a_message_of_another_run_is_a_problem_and_does_not_count():
    outcome = Outcome()
    assert check(message(7, run="other"), "run", 10, outcome) is None
    assert len(outcome.problems) == 1


@pytest.mark.parametrize(
    ("outcome", "agree"),
    [
        (outcome_of(5, 5, 5), True),
        (outcome_of(5, 5, 8, before=3), True),
        (outcome_of(5, 4, 5), False),
        (outcome_of(5, 5, 4), False),
        (outcome_of(5, 5, 6), False),
        (outcome_of(5, 5, 5, before=1), False),
    ],
)
def test_sent_received_and_counted_must_agree(outcome: Outcome, agree: bool):
    assert (disagreements(outcome) == []) is agree


def test_the_result_is_plain_text_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    show(outcome_of(12_345, 12_345, 12_345), 12_345, Console())
    text = capsys.readouterr().out
    assert "Sent, received and counted agree: 12,345 messages, each exactly once." in text
    assert "\x1b" not in text
    outcome = outcome_of(1, 0, 1)
    outcome.problems.append("queue 0 [bold]")
    show(outcome, 1, Console())
    assert "PROBLEM: queue 0 [bold]" in capsys.readouterr().out


async def test_a_failed_count_says_why(tmp_path: Path):
    with pytest.raises(RocketBrokerError, match="the count by Spark failed: "):
        await count_by_spark(tmp_path / "no store")


def test_the_first_error_of_nested_groups_is_reported():
    error = RocketBrokerError("why")
    assert first_of(ExceptionGroup("outer", [ExceptionGroup("inner", [error])])) is error
