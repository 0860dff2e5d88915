"""Requests and responses with their typed headers (RemotingCommand, CommandCustomHeader)."""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import astuple

from rocketbroker.codec.java_types import Int
from rocketbroker.common.errors import CodecError

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
# MQVersion.Version.V5_5_0.ordinal(): clients enable features by the server's version.
CURRENT_VERSION = 513

H = TypeVar("H")


class RemotingCommand(
    msgspec.Struct,
    Generic[H],
    rename={
        "header": "extFields",
        "serialize_type": "serializeTypeCurrentRPC",
        "body": "_body",
        "received_at": "_receivedAt",
        "is_suspended": "_isSuspended",
        "grant": "_grant",
    },
):
    """A command with its custom header.

    ``header`` is the typed header struct if the code has one, else the raw ``extFields`` (``dict[str, str]``) or
    ``None``. ``body`` is a bytes-like object; in a handler it is a view of the receive buffer, valid only during the
    call. ``received_at`` is a time of the event loop in seconds, ``is_suspended`` marks a held request; both are set
    only for a request that is not answered at once.
    """

    code: Int
    header: H = None  # type: ignore[assignment]
    flag: Int = 0
    language: str = "JAVA"
    opaque: Int = 0
    remark: str | None = None
    serialize_type: str = "JSON"
    version: Int = CURRENT_VERSION
    body: Any = b""
    # Set by the connection that received a request, whatever the peer sent.
    received_at: float = 0.0
    is_suspended: bool = False
    # Set by the guard of a request that waits: raises BrokerResponseError once its user may not send it any more. JSON
    # never becomes a callable, so what a peer sends here does not count.
    grant: Any = None

    @property
    def is_response(self) -> bool:
        """True for the answer to a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender expects no answer."""
        return bool(self.flag & FLAG_ONEWAY)


# A command whose header may be of any shape.
Command = RemotingCommand[Any]


def request(code: int, header: object = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """Return a request; its sender sets the opaque."""
    return RemotingCommand(int(code), header, flag=FLAG_ONEWAY if oneway else 0, body=body)


def response(code: int = 0, remark: str | None = None, header: object = None, body: bytes = b"") -> Command:
    """Return an answer; its sender copies the opaque of the request."""
    return RemotingCommand(int(code), header, flag=FLAG_RESPONSE, remark=remark, body=body)


# Typed request and response headers (org.apache.rocketmq.remoting.CommandCustomHeader).
#
# A header is a msgspec struct whose encoded field names are RocketMQ's. On the wire each value is a string. The C++
# client also sends JSON numbers and booleans, and booleans as "0" and "1", so that decoding is lax about the kind of a
# scalar.


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
