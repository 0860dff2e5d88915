"""Selection of messages by time, key and expression."""

import pytest
import typer

from rocketbroker.app.mqadmin.selecting import wanted
from tests.support.stored_message import stored


def test_messages_are_selected_by_time_and_key():
    message = stored(properties={"KEYS": "k1 k2", "UNIQ_KEY": "ID"}, store_timestamp=1000)
    assert wanted().has(message)
    assert wanted(1000, 1001).has(message)
    assert not wanted(1001).has(message)
    assert not wanted(None, 1000).has(message)
    assert wanted(key="k2").has(message)
    assert wanted(key="ID").has(message)
    assert not wanted(key="k").has(message)


def test_expressions_become_selectors():
    assert wanted().selector.expression == "*"
    assert wanted(tags="A || B").selector.tags == {"A", "B"}
    assert wanted(sql="a > 5").selector.expression_type == "SQL92"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"from_ms": 5, "until_ms": 5}, "--from is not before --until"),
        ({"tags": "A", "sql": "a > 5"}, "give either -s"),
        ({"tags": "a > 5"}, "looks like SQL; give it by --sql"),
        ({"sql": "a >"}, "--sql 'a >'"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], reason: str):
    with pytest.raises(typer.BadParameter, match=reason):
        wanted(**options)  # type: ignore[arg-type]
