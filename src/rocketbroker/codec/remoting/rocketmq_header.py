"""Binary header ROCKETMQ (org.apache.rocketmq.remoting.protocol.RocketMQSerializable).

    int16 code   int8 language   int16 version   int32 opaque   int32 flag
    int32 remarkLength     remark, UTF-8 (length 0 when there is none)
    int32 extFieldsLength  pairs until consumed: int16 keyLength, key, int32 valueLength, value

Code and version have only 16 bits: larger numbers are cut, as in Java.
"""

from struct import Struct

from rocketbroker.codec.remoting.custom_header import to_ext_fields
from rocketbroker.codec.remoting.language_code import LANGUAGE_CODES, OTHER, language_name
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand
from rocketbroker.common.errors import LocalProtocolError, RemoteProtocolError

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
    return RemotingCommand(code, fields or None, flag, language_name(language), opaque, text, "ROCKETMQ", version)


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
