"""Every property that RocketMQ has or had, from a packaged file.

The file is read on demand: for a name that no model has, and for `-p`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

_NAME_MAX = 100


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A property of RocketMQ with its Java class.

    `default` is text, or None. `last_version` is None for properties of 5.5.0. `important` ones are printed by `-m`.
    """

    name: str
    java_class: str
    default: str | None
    last_version: str | None = None
    important: bool = False


@cache
def _document() -> dict[str, Any]:
    import json  # most starts do not need it
    from importlib.resources import files

    resource = files("rocketbroker.common.config").joinpath("data/rocketmq-properties.json")
    document: dict[str, Any] = json.loads(resource.read_text(encoding="utf-8"))
    return document


def properties_of(java_class: str) -> list[KnownProperty]:
    """Return the properties of one class of 5.5.0, such as `MessageStoreConfig`, in order of declaration."""
    document = _document()
    important = set(document["important"])
    return [
        KnownProperty(name, java_class, default, important=name in important)
        for name, default in document["properties"][java_class].items()
    ]


def find(name: str) -> KnownProperty | None:
    """Return the property of that name in any class or version, else None."""
    document = _document()
    for java_class, properties in document["properties"].items():
        if name in properties:
            return KnownProperty(name, java_class, properties[name], important=name in document["important"])
    other = document["others"].get(name)
    return other and KnownProperty(name, other["class"], other["default"], other["last"])


def names() -> set[str]:
    """Return the names of all classes and versions."""
    document = _document()
    return {name for properties in document["properties"].values() for name in properties} | set(document["others"])


def nearest(name: str, own: list[str]) -> str | None:
    """Return the name most like a mistyped one, among RocketMQ's and `own`; letter case does not count."""
    import difflib

    if len(name) > _NAME_MAX:  # matching takes quadratic time
        return None
    by_lower = {known.lower(): known for known in [*names(), *own]}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None
