"""Frames of HTTP/2 as bytes, for a peer of the gRPC port that keeps to its rules or does not."""

import socket
from collections.abc import Iterator

from rocketbroker.proxy.grpc_server import SERVICE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL = (8).to_bytes(4)
#: First bytes of a client that takes no byte of any reply: its windows are empty.
NO_WINDOW = PREFACE + (6).to_bytes(3) + bytes([SETTINGS, 0]) + bytes(4) + b"\0\4" + bytes(4)


def frame(kind: int, payload: bytes = b"", stream_id: int = 0, flags: int = 0) -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def frames(sock: socket.socket, timeout_s: float = 20) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, flags and payload of each frame until the connection closes."""
    sock.settimeout(timeout_s)
    with sock.makefile("rb") as file:
        while header := file.read(9):
            yield header[3], header[4], file.read(int.from_bytes(header[:3]))


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field as HPACK writes it without its tables."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers_of(method: str, **metadata: str) -> bytes:
    """Return the header block of a call, with metadata."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{method}", ":authority": "x",
        "te": "trailers", "content-type": "application/grpc",
    }  # fmt: skip
    fields |= {name.replace("_", "-"): value for name, value in metadata.items()}
    return b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())


def begun_call(stream_id: int, claimed: int, data: bytes, method: str = "SendMessage", **metadata: str) -> bytes:
    """Return the frames of a call whose request claims a size; it is complete if ``data`` has it."""
    first = frame(HEADERS, headers_of(method, **metadata), stream_id, END_HEADERS)
    return first + frame(DATA, b"\0" + claimed.to_bytes(4) + data, stream_id)
