"""Errors that cross a process boundary, as those of pools and job queues do."""

import pickle

import pytest

from rocketbroker.client.core.errors import SendFailedError
from rocketbroker.common.errors import BrokerResponseError, MQFilterError, RocketBrokerError, StoreFullError, shown


@pytest.mark.parametrize(
    "error",
    [
        StoreFullError("the disk is full"),
        MQFilterError(3, "unexpected token"),
        BrokerResponseError(17, "no topic"),
    ],
)
def test_a_pickled_error_keeps_its_text_and_fields(error: RocketBrokerError):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (type(error), error.args, vars(error))


def test_a_pickled_failure_of_a_send_keeps_its_causes():
    error = SendFailedError("sent twice", [BrokerResponseError(2, "busy"), ValueError("no")])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "sent twice"
    assert [(type(each), str(each)) for each in copy.causes] == [(type(each), str(each)) for each in error.causes]


def test_an_ordinary_name_is_shown_as_it_is() -> None:
    assert shown("%RETRY%orders_group-1") == "%RETRY%orders_group-1"
    assert shown("Bestellung für Köln") == "Bestellung für Köln"
    assert shown("x" * 100) == "x" * 100


def test_a_long_name_is_cut_and_its_length_reported() -> None:
    assert shown("x" * 101) == "x" * 100 + "... (101 characters)"
    assert len(shown("\0" * 1_000_000)) < 500


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a\nERROR forged", r"a\nERROR forged"),
        ("a\r\x1b[2Kb", r"a\r\x1b[2Kb"),
        ("a\x85b\u2028c", r"a\x85b\u2028c"),
        ("evil\u202etxt", r"evil\u202etxt"),
        ("half \ud800", r"half \ud800"),
    ],
    ids=["newline", "terminal escape", "line separators", "direction override", "lone surrogate"],
)
def test_characters_that_would_break_a_line_are_escaped(name: str, expected: str) -> None:
    assert shown(name) == expected
