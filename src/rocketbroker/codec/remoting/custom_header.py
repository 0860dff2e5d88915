"""Typed request and response headers (org.apache.rocketmq.remoting.CommandCustomHeader).

A header is a msgspec struct whose encoded field names are RocketMQ's. On the wire each value is a string. The C++
client also sends JSON numbers and booleans, and booleans as "0" and "1", so that decoding is lax about the kind of a
scalar.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from rocketbroker.common.errors import CodecError


class CommandCustomHeader(msgspec.Struct, rename="camel", omit_defaults=False):
    """Base of all custom headers: snake_case attributes, RocketMQ's camelCase names on the wire."""


T = TypeVar("T", bound=CommandCustomHeader)


def text_of(value: object) -> str:
    """Return a scalar as Java's ``toString`` writes it; an IntEnum stands for a number, another Enum for its name."""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, Enum) and not isinstance(value, IntEnum):
        return value.name
    return str(value)


def to_ext_fields(header: object) -> dict[str, str] | None:
    """Return the ``extFields`` of a header: a struct, a mapping or ``None``; fields that are ``None`` are left out."""
    if header is None:
        return None
    if isinstance(header, dict):
        pairs: Iterable[tuple[str, object]] = header.items()
    else:
        pairs = zip(header.__struct_encode_fields__, astuple(header), strict=True)  # type: ignore[attr-defined,arg-type]
    # Clients do this for each send, so texts and numbers, which most values are, take no call.
    return {
        name: value if (kind := type(value)) is str else str(value) if kind is int else text_of(value)  # type: ignore[misc]
        for name, value in pairs
        if value is not None
    }


def from_ext_fields(fields: dict[str, Any] | None, header_type: type[T]) -> T:
    """Decode a typed header from raw ``extFields``.

    Raises:
        CodecError: A required field is missing or a value has the wrong type; the text names the field.
    """
    try:
        return msgspec.convert(fields or {}, header_type, strict=False)
    except msgspec.ValidationError:
        pass
    # A number or boolean may stand for a text.
    texts = {key: text_of(value) for key, value in (fields or {}).items()}
    try:
        return msgspec.convert(texts, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise CodecError(describe_field_error(str(error), texts)) from None


def describe_field_error(text: str, fields: dict[str, str]) -> str:
    """Return msgspec's error in the words of the protocol: the field, its value, and the expected type."""
    if "missing required field" in text:
        name = text.split("`")[1]
        return f"the custom field <{name}> is missing from extFields"
    reason, _, path = text.partition(" - at `$.")
    name = path.rstrip("`")
    return f"the custom field <{name}> has the value {fields.get(name, '')[:64]!r}: {reason}"
