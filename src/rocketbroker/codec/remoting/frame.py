"""Frames of the remoting protocol (NettyDecoder, NettyEncoder and RemotingCommand.encode).

int32  length          bytes that follow: 4 + headerLength + bodyLength
int32  mark            high byte: header encoding, 0 JSON, 1 ROCKETMQ; low 24 bits: headerLength
bytes  header
bytes  body
"""

from collections.abc import Callable, Iterator
from struct import Struct

from rocketbroker.codec.remoting.json_header import decode_json_header, encode_json_header
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.rocketmq_header import decode_rocketmq_header, encode_rocketmq_header
from rocketbroker.common.errors import LocalProtocolError, RemoteProtocolError

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
        return "the peer speaks TLS, and this side does not; switch TLS off or on at both (useTLS, tls)"
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


def frame_parts(header: bytes, body: bytes, serialize_type: int = SERIALIZE_JSON) -> tuple[bytes, ...]:
    """Return the length, mark, header and body of a frame as separate pieces."""
    if len(header) > MAX_HEADER_LENGTH:
        raise LocalProtocolError(f"header of {len(header)} bytes exceeds the limit of {MAX_HEADER_LENGTH}")
    mark = serialize_type << 24 | len(header)
    return LENGTH_AND_MARK.pack(4 + len(header) + len(body), mark), header, body


def encode_frame(command: Command, serialize_type: int = SERIALIZE_JSON) -> bytes:
    """Return a whole frame, its length field included."""
    encode: Callable[[Command], bytes] = (
        encode_json_header if serialize_type == SERIALIZE_JSON else encode_rocketmq_header
    )
    return b"".join(frame_parts(encode(command), command.body, serialize_type))
