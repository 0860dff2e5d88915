"""Answers that are kept as bytes."""

from collections.abc import Callable

import pytest

from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.encoded_answers import LARGEST_BODY, EncodedAnswers


def test_an_answer_is_made_once_until_something_changes() -> None:
    made: list[str] = []

    def make(name: str) -> Callable[[], bytes]:
        def answer() -> bytes:
            made.append(name)
            return name.encode()

        return answer

    answers = EncodedAnswers()

    def ask() -> list[str]:
        made.clear()
        assert answers.route("T", 1, make("T")) == b"T"
        assert answers.route("U", 1, make("U")) == b"U"
        assert answers.list("topics", make("topics")) == b"topics"
        return list(made)

    assert ask() == ["T", "U", "topics"]
    assert ask() == []
    answers.forget_topics(["T", "unknown"])
    assert ask() == ["T", "topics"]
    answers.forget()
    assert ask() == ["T", "U", "topics"]


def test_forms_of_a_route_differ() -> None:
    answers = EncodedAnswers()
    assert answers.route("T", 1, lambda: b"one") == b"one"
    assert answers.route("T", 2, lambda: b"two") == b"two"
    assert answers.route("T", 1, lambda: None) == b"one"
    answers.forget_topics(["T"])
    assert answers.route("T", 1, lambda: None) is None
    assert answers._bytes == 0


def test_they_take_bounded_memory() -> None:
    answers = EncodedAnswers(most_bytes=1000)
    for number in range(100):
        answers.route(f"{number // 3}", number, lambda: bytes(100))
        answers.list(number, lambda: bytes(50))
        answers.forget_topics([f"{number // 2}"])
        routes = (len(body) for forms in answers._routes.values() for body in forms.values())
        assert sum(routes) + sum(map(len, answers._lists.values())) == answers._bytes <= 1000
    assert answers.route("none", 1, lambda: None) is None
    assert "none" not in answers._routes


def test_one_that_no_frame_holds_is_rejected() -> None:
    with pytest.raises(BrokerResponseError, match="more than a frame can carry; ask for a part of it"):
        EncodedAnswers().list("a", lambda: bytes(LARGEST_BODY + 1))
