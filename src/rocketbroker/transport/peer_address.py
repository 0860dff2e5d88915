"""Peer addresses in the form of message records."""

import socket
from typing import Any


def host_bytes(address: Any) -> bytes:
    """Encode a socket address as in message records: 4 or 16 address bytes and an int32 port."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    packed = socket.inet_pton(family, address[0].partition("%")[0])
    if family == socket.AF_INET6 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        packed = packed[12:]
    port: int = address[1]
    return packed + port.to_bytes(4, "big")
