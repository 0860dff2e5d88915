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


# What a schema is made of; another keyword would need a look here.
KEYWORDS = {
    *("$schema", "$comment", "title", "type", "properties", "required", "additionalProperties"),
    *("items", "anyOf", "oneOf", "enum", "const", "minimum", "maximum", "pattern", "minItems", "maxItems"),
}


def faults_in(schema: Any, path: str = "$") -> Iterator[str]:
    """The places in a schema where a value of any shape would pass."""
    if not isinstance(schema, dict):
        yield f"{path}: anything passes"
        return
    types = schema.get("type", [])
    types = {types} if isinstance(types, str) else set(types)
    unknown = schema.keys() - KEYWORDS
    if unknown:
        yield f"{path}: unknown keywords {sorted(unknown)}"
    if not types and not schema.keys() & {"anyOf", "oneOf", "enum", "const", "$comment"}:
        yield f"{path}: any type passes"
    if "object" in types and schema.get("additionalProperties", True) is True:
        yield f"{path}: any key passes"
    if "array" in types and "items" not in schema:
        yield f"{path}: any item passes"
    for name, each in schema.get("properties", {}).items():
        yield from faults_in(each, f"{path}.{name}")
    if isinstance(others := schema.get("additionalProperties"), dict):
        yield from faults_in(others, f"{path}.*")
    if "items" in schema:
        yield from faults_in(schema["items"], f"{path}[]")
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from faults_in(each, f"{path}|")


def test_there_is_one_for_each_sub_command_and_no_other():
    assert sorted(path.stem for path in SCHEMAS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_valid_and_names_all_keys(name: str):
    schema = schema_of(name)

    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"mqadmin {name} --json"
    assert list(faults_in(schema)) == []


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({}, "$: any type passes"),
        (True, "$: anything passes"),
        ({"type": ["null", "object"]}, "$: any key passes"),
        ({"type": "object", "additionalProperties": True}, "$: any key passes"),
        ({"type": "array"}, "$: any item passes"),
        ({"anyOf": [{"type": "array", "items": {"type": "object"}}]}, "$|[]: any key passes"),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": {}}, "$.a: any type passes"),
        ({"type": "object", "$ref": "x", "additionalProperties": False}, "$: unknown keywords ['$ref']"),
    ],
)
def test_a_schema_that_lets_anything_pass_is_noticed(schema: Any, fault: str):
    assert fault in list(faults_in(schema))


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
