"""Rules that hold for every body struct."""

import importlib
import pkgutil
from enum import Enum
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting import bodies, fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Int: st.integers(-(2**31), 2**31 - 1),
    Long: st.integers(-(2**63), 2**63 - 1),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: TEXT,
    bytes: st.binary(max_size=12),
    Any: st.recursive(st.booleans() | TEXT, lambda inner: st.dictionaries(TEXT, inner, max_size=2), max_leaves=3),
    type(None): st.none(),
}


def all_bodies() -> list[type[RemotingSerializable]]:
    names = [f"{bodies.__name__}.{info.name}" for info in pkgutil.iter_modules(bodies.__path__)]
    return [
        value
        for module in map(importlib.import_module, names)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, RemotingSerializable) and value.__module__ == module.__name__
    ]


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: values_of(field.type) for field in msgspec.structs.fields(kind)})
    arguments = map(values_of, get_args(kind))
    if get_origin(kind) is list:
        return st.lists(*arguments, max_size=2)
    if get_origin(kind) is dict:
        return st.dictionaries(*arguments, max_size=2)
    return st.one_of(*arguments)


@pytest.mark.parametrize("kind", all_bodies(), ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_it_survives_its_encoding(kind: type[RemotingSerializable], data: st.DataObject):
    body = data.draw(values_of(kind))

    assert kind.decode(body.encode()) == body


@pytest.mark.parametrize("kind", all_bodies(), ids=lambda kind: kind.__name__)
def test_its_fields_come_by_alphabet(kind: type[RemotingSerializable]):
    required = {field.encode_name: "1111" for field in msgspec.structs.fields(kind) if field.required}
    values = {name: [] if name.endswith("List") else value for name, value in required.items()}

    names = list(fastjson.loads(kind.decode(msgspec.json.encode(values)).encode()))

    assert names == sorted(names)
    assert set(values) <= set(names)


def test_there_are_as_many_as_the_families_hold():
    names = [kind.__name__ for kind in all_bodies()]

    assert len(names) == len(set(names)) >= 50
