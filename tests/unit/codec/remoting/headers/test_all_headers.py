"""Rules that hold for every header struct."""

import importlib
import pkgutil
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting import headers
from rocketbroker.codec.remoting.frame import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, encode_frame, split_frame
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader, from_ext_fields, request, to_ext_fields
from rocketbroker.common.errors import CodecError

# Neither encoding has a sign for null, so that an optional text of these letters is read as what it says.
TEXT = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: text.lower() != "null")
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Int: st.integers(-(2**31), 2**31 - 1),
    Long: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    str: TEXT,
    type(None): st.none(),
}


def all_headers() -> list[type[CommandCustomHeader]]:
    names = [f"{headers.__name__}.{info.name}" for info in pkgutil.iter_modules(headers.__path__)]
    return [
        value
        for module in map(importlib.import_module, names)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, CommandCustomHeader) and value.__module__ == module.__name__
    ]


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    return VALUES[kind] if kind in VALUES else st.one_of(*map(values_of, get_args(kind)))


def instances(header: type[CommandCustomHeader]) -> st.SearchStrategy[CommandCustomHeader]:
    return st.builds(header, **{field.name: values_of(field.type) for field in msgspec.structs.fields(header)})


@pytest.mark.parametrize("header", all_headers(), ids=lambda header: header.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_it_survives_both_encodings(header: type[CommandCustomHeader], data: st.DataObject):
    sent = data.draw(instances(header))

    assert from_ext_fields(to_ext_fields(sent), header) == sent
    for serialize_type in (SERIALIZE_JSON, SERIALIZE_ROCKETMQ):
        _, encoded, _ = split_frame(memoryview(encode_frame(request(1, sent), serialize_type))[4:])
        route = Route(1, lambda connection, command: b"", header)
        assert route.decode(serialize_type, encoded).header == sent


@pytest.mark.parametrize("header", all_headers(), ids=lambda header: header.__name__)
def test_each_required_field_is_missed_by_name(header: type[CommandCustomHeader]):
    required = [field.encode_name for field in msgspec.structs.fields(header) if field.required]
    fields = dict.fromkeys(required, "1")

    assert isinstance(from_ext_fields(fields, header), header)
    for name in required:
        with pytest.raises(CodecError, match=f"the custom field <{name}> is missing"):
            from_ext_fields({key: value for key, value in fields.items() if key != name}, header)


@pytest.mark.parametrize("header", all_headers(), ids=lambda header: header.__name__)
def test_each_number_is_checked_by_its_range(header: type[CommandCustomHeader]):
    required = {field.encode_name: "1" for field in msgspec.structs.fields(header) if field.required}
    for field in msgspec.structs.fields(header):
        if field.type in (Int, Long):
            beyond = str(2**31 if field.type is Int else 2**63)
            with pytest.raises(CodecError, match=f"<{field.encode_name}> has the value '{beyond}'"):
                from_ext_fields(required | {field.encode_name: beyond}, header)


def test_no_two_headers_have_one_name():
    names = [header.__name__ for header in all_headers()]

    assert len(names) == len(set(names)) > 70
