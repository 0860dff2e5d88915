"""Frames of the remoting protocol (NettyDecoder, NettyEncoder, RemotingCommand.encode) and their two header encodings.

    int32  length          bytes that follow: 4 + headerLength + bodyLength
    int32  mark            high byte: header encoding, 0 JSON, 1 ROCKETMQ; low 24 bits: headerLength
    bytes  header
    bytes  body

JSON (org.apache.rocketmq.remoting.protocol.RemotingSerializable):

    {"code":310,"extFields":{"a":"group",...},"flag":0,"language":"JAVA","opaque":7,
     "serializeTypeCurrentRPC":"JSON","version":513}

ROCKETMQ (org.apache.rocketmq.remoting.protocol.RocketMQSerializable):

    int16 code   int8 language   int16 version   int32 opaque   int32 flag
    int32 remarkLength     remark, UTF-8 (length 0 when there is none)
    int32 extFieldsLength  pairs until consumed: int16 keyLength, key, int32 valueLength, value
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec

from rocketbroker.codec.remoting.remoting_command import (
    Command,
    CommandCustomHeader,
    RemotingCommand,
    from_ext_fields,
    text_of,
    to_ext_fields,
)
from rocketbroker.common.errors import CodecError, LocalProtocolError, RemoteProtocolError

# -- JSON header
#
# Java writes keys in alphabetical order, leaves ``remark`` and ``extFields`` out if null, and writes each value of
# ``extFields`` as a string. Other clients differ: C++ sends numbers and booleans for texts, and some send another
# order, blanks, or a line feed at the end. All are understood; what is written is Java's form.

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


LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
OTHER = LANGUAGE_CODES["OTHER"]


# -- Binary header
#
# Code and version have only 16 bits: larger numbers are cut, as in Java.

_FIXED = Struct(">hbhiii")
_KEY_LENGTH = Struct(">h")
_LENGTH = Struct(">i")
_MAX_KEY_LENGTH = 0x7FFF
# Requests and answers of RocketMQ have about twenty fields; a pair costs about 2 µs.
_MOST_FIELDS = 1_024


def _cut(header: memoryview, position: int, length: int, what: str) -> tuple[bytes, int]:
    end = position + length
    if length < 0 or end > len(header):
        raise RemoteProtocolError(
            f"ROCKETMQ header: {what} claims {length} bytes at {position}, but the header has {len(header)}"
        )
    return bytes(header[position:end]), end


def _number(struct: Struct, header: memoryview, position: int, what: str) -> tuple[int, int]:
    data, end = _cut(header, position, struct.size, what)
    return struct.unpack(data)[0], end


def _ext_fields(pairs: memoryview) -> dict[str, str]:
    fields = {}
    position = count = 0
    while position < len(pairs):
        count += 1
        if count > _MOST_FIELDS:
            raise RemoteProtocolError(f"ROCKETMQ header: extFields exceed the limit of {_MOST_FIELDS} fields")
        length, position = _number(_KEY_LENGTH, pairs, position, "key length")
        key, position = _cut(pairs, position, length, "key")
        length, position = _number(_LENGTH, pairs, position, "value length")
        value, position = _cut(pairs, position, length, "value")
        fields[key.decode()] = value.decode()
    return fields


def decode_rocketmq_header(header: memoryview) -> Command:
    """Decode a binary header; ``header`` of the command is the raw ``extFields`` or ``None``.

    Raises:
        RemoteProtocolError: A length exceeds the header, or a text is not UTF-8.
    """
    if len(header) < _FIXED.size + _LENGTH.size:
        raise RemoteProtocolError(f"ROCKETMQ header has {len(header)} bytes; at least {_FIXED.size + 4} are needed")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    try:
        remark, position = _cut(header, _FIXED.size, remark_length, "remark")
        length, position = _number(_LENGTH, header, position, "extFields length")
        _cut(header, position, length, "extFields")
        fields = _ext_fields(header[position : position + length])
        text = remark.decode() if remark_length else None
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"ROCKETMQ header: a text is not UTF-8 ({error.reason})") from None
    # An unknown code is OTHER, as in Java.
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return RemotingCommand(code, fields or None, flag, name, opaque, text, "ROCKETMQ", version)


def _short(number: int) -> int:
    return (number + 0x8000 & 0xFFFF) - 0x8000


def encode_rocketmq_header(command: Command) -> bytes:
    """Encode the header of a command in the binary form; fields that are ``None`` are left out."""
    remark = (command.remark or "").encode()
    fields = bytearray()
    for key, value in (to_ext_fields(command.header) or {}).items():
        name, text = key.encode(), value.encode()
        if len(name) > _MAX_KEY_LENGTH:
            raise LocalProtocolError(
                f"field name of {len(name)} bytes exceeds the limit of {_MAX_KEY_LENGTH} in the ROCKETMQ header"
            )
        fields += _KEY_LENGTH.pack(len(name)) + name + _LENGTH.pack(len(text)) + text
    language = LANGUAGE_CODES.get(command.language, OTHER)
    fixed = _FIXED.pack(
        _short(command.code), language, _short(command.version), command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, _LENGTH.pack(len(fields)), fields))


# -- Frames

LENGTH = Struct(">i")
LENGTH_AND_MARK = Struct(">iI")
# com.rocketmq.remoting.frameMaxLength
FRAME_MAX_LENGTH = 16 * 1024 * 1024
SERIALIZE_JSON = 0
SERIALIZE_ROCKETMQ = 1
MAX_HEADER_LENGTH = 0xFFFFFF
# Pieces of up to this many bytes together are joined before they are written: a connection takes one piece faster.
JOIN_LIMIT = 64 * 1024


# First four bytes of other protocols, which read as lengths beyond every limit.
_HTTP_WORDS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"}
_TLS_RECORDS = {b"\x16\x03", b"\x15\x03"}  # a handshake, or an alert


def other_protocol(first: bytes) -> str:
    """Return a sentence if the first four bytes of a frame are those of another protocol, else ""."""
    if first == b"PRI ":
        return "the peer speaks HTTP/2, as gRPC clients do; use a client of the remoting protocol (rocketmq-client)"
    if first in _HTTP_WORDS:
        return "the peer speaks HTTP; this port serves RocketMQ's remoting protocol"
    if first == b"HTTP":
        return "the peer answers in HTTP; give the address of a name server (9876) or a broker (10911)"
    if first[:2] in _TLS_RECORDS:
        return (
            "the peer speaks TLS, and this side does not; switch TLS off or on at both (tls.enable, or tls of a Python "
            "client)"
        )
    return ""


def check_length(length: int, limit: int = FRAME_MAX_LENGTH) -> None:
    """Check the length field of a frame before memory is taken for it.

    Raises:
        RemoteProtocolError: It is below 4 or above the limit.
    """
    if length < LENGTH.size:
        raise RemoteProtocolError(f"frame length {length} is below the minimum of 4")
    if length > limit:
        reason = other_protocol(LENGTH.pack(length))
        raise RemoteProtocolError(
            reason or f"frame length {length} exceeds the limit of {limit} bytes (frameMaxLength)"
        )


def check_header_length(mark: int, limit: int) -> None:
    """Check the header length in the mark of a frame before the rest of the frame is awaited.

    Raises:
        RemoteProtocolError: It is above the limit.
    """
    if mark & MAX_HEADER_LENGTH > limit:
        raise RemoteProtocolError(
            f"header length {mark & MAX_HEADER_LENGTH} exceeds the limit of {limit} bytes (maxHeaderLength)"
        )


def split_frame(frame: memoryview) -> tuple[int, memoryview, memoryview]:
    """Return the header encoding, header and body of a frame without its length field.

    Raises:
        RemoteProtocolError: The header is longer than the frame, or its encoding is unknown.
    """
    mark = int.from_bytes(frame[:4], "big")
    end = 4 + (mark & MAX_HEADER_LENGTH)
    serialize_type = mark >> 24
    if end > len(frame):
        raise RemoteProtocolError(f"header length {end - 4} exceeds the {len(frame) - 4} bytes of the frame")
    if serialize_type not in (SERIALIZE_JSON, SERIALIZE_ROCKETMQ):
        raise RemoteProtocolError(f"header encoding {serialize_type} is unknown; 0 is JSON, 1 is ROCKETMQ")
    return serialize_type, frame[4:end], frame[end:]


def decode_frame(frame: memoryview) -> Command:
    """Decode a frame without knowing its code; ``header`` is the raw ``extFields``, ``body`` a view.

    Raises:
        RemoteProtocolError: The frame is broken.
    """
    return decode_parts(*split_frame(frame))


def decode_parts(serialize_type: int, header: memoryview, body: memoryview) -> Command:
    """Decode the parts of a frame as ``decode_frame``."""
    command = decode_json_header(header) if serialize_type == SERIALIZE_JSON else decode_rocketmq_header(header)
    command.body = body
    return command


def decode_frames(data: bytes) -> Iterator[Command]:
    """Decode whole frames that follow each other, as ``decode_frame``."""
    rest = memoryview(data)
    while rest:
        end = LENGTH.size + int.from_bytes(rest[: LENGTH.size], "big")
        yield decode_frame(rest[LENGTH.size : end])
        rest = rest[end:]


def encode_frame(command: Command, serialize_type: int = SERIALIZE_JSON) -> bytes:
    """Return a whole frame, its length field included."""
    return b"".join((encode_head(command, len(command.body), serialize_type), command.body))


def encode_head(command: Command, body_length: int, serialize_type: int = SERIALIZE_JSON) -> bytes:
    """Return length, mark and header of a frame; ``body_length`` bytes must follow."""
    header = (encode_json_header if serialize_type == SERIALIZE_JSON else encode_rocketmq_header)(command)
    if len(header) > MAX_HEADER_LENGTH:
        raise LocalProtocolError(f"header of {len(header)} bytes exceeds the limit of {MAX_HEADER_LENGTH}")
    mark = serialize_type << 24 | len(header)
    return LENGTH_AND_MARK.pack(4 + len(header) + body_length, mark) + header
