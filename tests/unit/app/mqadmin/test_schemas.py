"""Every sub-command has a schema of what --json prints, and it is one that notices changes."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rocketbroker.app.mqadmin.cli import SUB_COMMANDS
from tests.support.admin_schemas import SCHEMAS, checked, draft, schema_of

# These print a file for another program.
WITHOUT_JSON = {"alerts", "grafana"}
NAMES = [name for name in SUB_COMMANDS if name not in WITHOUT_JSON]


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas of objects in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for each in schema.values():
            yield from objects_in(each)
    if isinstance(schema, list):
        for each in schema:
            yield from objects_in(each)


def test_there_is_one_for_each_sub_command_and_no_other():
    assert sorted(path.stem for path in SCHEMAS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_valid_and_names_all_keys(name: str):
    schema = schema_of(name)

    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"mqadmin {name} --json"
    assert [each for each in objects_in(schema) if each.keys() == {"type"}] == []
    assert [each for each in objects_in(schema) if each.get("additionalProperties") is True] == []
    assert next(objects_in(schema), None) is not None


def test_another_key_a_missing_one_and_another_type_are_noticed():
    right = {"topics": ["T"]}

    assert checked("topicList", right) is right
    others: tuple[Any, ...] = ({"topics": ["T"], "more": 1}, {}, {"topics": [1]}, [])
    for wrong in others:
        with pytest.raises(AssertionError, match="topicList"):
            checked("topicList", wrong)


def test_a_draft_fits_the_values_that_it_was_made_of():
    values = [
        {"a": None, "b": [{"x": 1}, {"y": 2.5}], "c": {"0": "zero", "1": "one"}},
        {"a": "text", "b": [], "d": True},
        {"a": {"e": 1}, "b": [[]]},
    ]
    check = Draft202012Validator(draft(values))

    assert [value for value in values if not check.is_valid(value)] == []
    assert not check.is_valid({"b": []})
    assert not check.is_valid({"a": None, "b": [], "other": 1})
