"""Answers that are kept as bytes."""

import pytest

from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.encoded_answers import LARGEST_BODY, EncodedAnswers


def test_an_answer_is_made_once_until_something_changes() -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"answer"

    answers = EncodedAnswers()
    assert [answers.get("a", make) for _ in range(3)] == [b"answer"] * 3
    assert len(made) == 1
    answers.forget()
    answers.get("a", make)
    assert len(made) == 2


def test_they_take_bounded_memory() -> None:
    answers = EncodedAnswers(most_bytes=1000)
    for number in range(100):
        answers.get(number, lambda: bytes(100))
        assert sum(map(len, answers._bodies.values())) <= 1000
    assert answers.get("none", lambda: None) is None
    assert "none" not in answers._bodies


def test_one_that_no_frame_holds_is_rejected() -> None:
    with pytest.raises(BrokerResponseError, match="more than a frame can carry; ask for a part of it"):
        EncodedAnswers().get("a", lambda: bytes(LARGEST_BODY + 1))
