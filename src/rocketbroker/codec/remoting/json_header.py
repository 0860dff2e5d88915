"""JSON header, as fastjson writes and reads it (org.apache.rocketmq.remoting.protocol.RemotingSerializable).

    {"code":310,"extFields":{"a":"group",...},"flag":0,"language":"JAVA","opaque":7,
     "serializeTypeCurrentRPC":"JSON","version":513}

Keys are in alphabetical order, ``remark`` and ``extFields`` are left out if null, and each value of ``extFields`` is a
string. Other clients differ in order, numbers, blanks, or a line feed at the end, and are understood as well.
"""

from typing import Any, Generic, TypeVar

import msgspec

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader, from_ext_fields, text_of, to_ext_fields
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand
from rocketbroker.common.errors import CodecError, RemoteProtocolError

T = TypeVar("T", bound=CommandCustomHeader)

Scalar = str | int | float | bool | None


_TEXT_DECODER = msgspec.json.Decoder(RemotingCommand[dict[str, str] | None], strict=False)
_UNTYPED_DECODER = msgspec.json.Decoder(RemotingCommand[dict[str, Scalar] | None], strict=False)
_ENCODER = msgspec.json.Encoder()


def decode_json_header(header: memoryview) -> Command:
    """Decode a JSON header; ``header`` of the command is the raw ``extFields`` (texts only) or ``None``.

    Raises:
        RemoteProtocolError: The header is not a JSON object with fields of the right types.
    """
    try:
        command: Command = _TEXT_DECODER.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        command = _decode_scalars(header)
    command.body = b""
    return command


def _decode_scalars(header: memoryview) -> Command:
    """Decode a header with values other than text, or name its fault."""
    try:
        command: Command = _UNTYPED_DECODER.decode(header)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"JSON header: {error}") from None
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON header is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise RemoteProtocolError("JSON header is nested too deep; extFields holds plain values") from None
    if command.header is not None:
        command.header = {key: text_of(value) for key, value in command.header.items() if value is not None}
    return command


def encode_json_header(command: Command) -> bytes:
    """Encode the header of a command as Java writes it: keys in order, nulls left out, values as strings."""
    fields = to_ext_fields(command.header)
    parts: dict[str, Any] = {"code": command.code}
    if fields is not None:
        parts["extFields"] = fields
    parts["flag"] = command.flag
    parts["language"] = command.language
    parts["opaque"] = command.opaque
    if command.remark is not None:
        parts["remark"] = command.remark
    parts["serializeTypeCurrentRPC"] = "JSON"
    parts["version"] = command.version
    return _ENCODER.encode(parts)


class TypedJsonDecoder(Generic[T]):
    """Decodes the JSON header of one request code straight into its typed header, about 1 µs for a send."""

    def __init__(self, header_type: type[T]) -> None:
        self._header_type = header_type
        self._decode = msgspec.json.Decoder(RemotingCommand[header_type], strict=False).decode  # type: ignore[valid-type]

    def __call__(self, header: memoryview) -> RemotingCommand[T]:
        """Decode a header.

        Raises:
            RemoteProtocolError: The bytes are not a JSON header at all.
            HeaderFieldError: A field is missing or of the wrong type; carries the command, so that it can be answered.
        """
        try:
            command: Command = self._decode(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Rare shapes (numbers for texts, nulls) and errors: decode without types, then name the fault.
            return with_typed_header(decode_json_header(header), self._header_type)
        if command.header is None:
            return with_typed_header(command, self._header_type)
        return command


class HeaderFieldError(CodecError):
    """A custom header lacks a field or has an invalid one; ``command`` is the request."""

    def __init__(self, command: Command, text: str) -> None:
        super().__init__(text)
        self.command = command


def with_typed_header(command: Command, header_type: type[T]) -> RemotingCommand[T]:
    """Replace the raw ``extFields`` of a command by its typed header.

    Raises:
        HeaderFieldError: A field is missing or of the wrong type.
    """
    try:
        command.header = from_ext_fields(command.header, header_type)
    except CodecError as error:
        raise HeaderFieldError(command, str(error)) from None
    return command
