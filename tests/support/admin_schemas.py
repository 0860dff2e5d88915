"""JSON schemas of what ``mqadmin SUB_COMMAND --json`` prints: ``tests/golden/mqadmin/schemas/SUB_COMMAND.json``.

``python -m tests.support.admin_schemas SUB_COMMAND FILE...`` drafts a schema from outputs of a real server. Then name
what may be missing or null, and which objects have names for keys (``additionalProperties``).
"""

import json
import sys
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "golden" / "mqadmin" / "schemas"
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema_of(name: str) -> Any:
    """Return the schema of a sub-command."""
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def checked(name: str, data: Any) -> Any:
    """Return what a sub-command printed as JSON, which must fit its schema."""
    faults = [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema_of(name)).iter_errors(data)
    ]
    assert faults == [], f"mqadmin {name} --json"
    return data


def checked_json(name: str, text: str) -> Any:
    """Return the value that a sub-command printed, which must fit its schema."""
    return checked(name, json.loads(text))


def draft(values: list[Any]) -> dict[str, Any]:
    """Return a schema that the values fit: it allows no other keys, and requires those that all alike objects have."""
    plain = {_KINDS[type(value)] for value in values if type(value) in _KINDS}
    shapes: list[dict[str, Any]] = [{"type": sorted(plain) if len(plain) > 1 else plain.pop()}] if plain else []
    if items := [each for value in values if isinstance(value, list) for each in value]:
        shapes.append({"type": "array", "items": draft(items)})
    elif [] in values:
        shapes.append({"type": "array"})
    objects = [value for value in values if isinstance(value, dict)]
    # Objects that share no key are different ones.
    while objects:
        alike = [value for value in objects if value.keys() & objects[0].keys()] or objects[:1]
        objects = [value for value in objects if value not in alike]
        shapes.append(_object(alike))
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _object(values: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for value in values for name in value)
    if any(not name.isidentifier() for name in names):
        return {"type": "object", "additionalProperties": draft([each for value in values for each in value.values()])}
    return {
        "type": "object",
        "properties": {name: draft([value[name] for value in values if name in value]) for name in names},
        "required": [name for name in names if all(name in value for value in values)],
        "additionalProperties": False,
    }


def main(name: str, files: list[str]) -> None:
    """Write the draft of a schema."""
    values = [json.loads(Path(each).read_text()) for each in files]
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"mqadmin {name} --json"}
    schema |= draft(values)
    SCHEMAS.mkdir(exist_ok=True)
    (SCHEMAS / f"{name}.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
