"""A peer that sends any bytes, valid or not, and reads frames with its own decoder."""

import json
import socket
import struct
from types import TracebackType
from typing import Any, NamedTuple, Self

TIMEOUT_S = 60.0


class RawAnswer(NamedTuple):
    """A frame that came: its JSON header and its body."""

    header: dict[str, Any]
    body: bytes

    @property
    def code(self) -> int:
        code: int = self.header["code"]
        return code

    @property
    def remark(self) -> str:
        return self.header.get("remark") or ""

    @property
    def fields(self) -> dict[str, str]:
        fields: dict[str, str] = self.header.get("extFields") or {}
        return fields


def raw_frame(header: dict[str, Any] | bytes, body: bytes = b"", *, mark: int | None = None) -> bytes:
    """Return a frame around a header; ``mark`` replaces encoding and header length."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">iI", 4 + len(text) + len(body), len(text) if mark is None else mark) + text + body


def raw_header(code: int, fields: dict[str, Any] | None = None, opaque: int = 1, **others: Any) -> dict[str, Any]:
    header = {"code": code, "language": "JAVA", "version": 513, "opaque": opaque, "flag": 0}
    return {**header, **({} if fields is None else {"extFields": fields}), **others}


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


class RawClient:
    """One TCP connection to "host:port", or over a socket that is connected already."""

    def __init__(self, to: str | socket.socket) -> None:
        self._socket = to if isinstance(to, socket.socket) else _connect(to)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> RawAnswer | None:
        """Return the next frame, or None when the peer closed."""
        try:
            head = self._stream.read(8)
        except ConnectionResetError:
            return None
        if not head:
            return None
        length, mark = struct.unpack(">iI", head)
        rest = self._stream.read(length - 4)
        size = mark & 0xFFFFFF
        return RawAnswer(json.loads(rest[:size]), rest[size:])

    def answer(self, opaque: int) -> RawAnswer:
        """Return the answer to a request, past whatever the server itself asks meanwhile."""
        while (frame := self.read()) is not None:
            if frame.header["flag"] & 1 and frame.header["opaque"] == opaque:
                return frame
        raise AssertionError(f"the connection was closed before request {opaque} was answered")

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", opaque: int = 1) -> RawAnswer:
        """Send a request and wait for its answer."""
        self.send(raw_frame(raw_header(code, fields, opaque), body))
        return self.answer(opaque)

    def exchange(self, frame: bytes, opaque: int = 1) -> RawAnswer:
        """Send a frame and wait for the answer with that opaque."""
        self.send(frame)
        return self.answer(opaque)
