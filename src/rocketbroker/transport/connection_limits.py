"""Limits for the peers of a server or a client (org.apache.rocketmq.remoting.netty.NettyServerConfig)."""

from typing import NamedTuple

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH

# Answers that wait to be sent; over it the connection is not heard until the peer has taken some.
WRITE_HIGH_WATER = 1024 * 1024
# The properties of a message have 32,767 bytes at most, each of which JSON may write as six, and other fields few.
_MAX_HEADER_LENGTH = 256 * 1024
_MAX_REQUEST_BODY_SIZE = 1024 * 1024
_MAX_HELD_BYTES = 512 * 1024 * 1024
# Requests to a peer that is behind with its answers.
_MAX_PUSH_BYTES = 1024 * 1024


class ConnectionLimits(NamedTuple):
    """Bounds of what peers may take; sizes are in bytes.

    Attributes:
        frame_max_length: of the length field.
        max_connections: open at a time; 0 is any number.
        max_connections_per_address: of them; 0 is half of ``max_connections``, and any number on this machine.
        write_high_water: a peer that has not taken so much of its answers is not heard.
        max_idle_s: a connection is closed that sends nothing, and dropped that takes nothing of what waits for it.
        send_buffer: the kernel's for each connection; 0 leaves it to the kernel.
        max_header_length: of a frame.
        max_request_body_size: of requests whose routes take no large bodies.
        max_held_bytes: memory of all connections between events: incomplete frames, requests and answers that wait.
        frame_timeout_s: from the first byte of a frame to its last; more on a slow link.
        max_descriptor: a connection with this descriptor, or a higher one, is turned away; 0 takes any.
        max_push_bytes: requests to a peer may add so much to what waits for it while it is behind.
    """

    frame_max_length: int = FRAME_MAX_LENGTH
    max_connections: int = 0
    max_connections_per_address: int = 0
    write_high_water: int = WRITE_HIGH_WATER
    max_idle_s: float = 120.0
    send_buffer: int = 0
    max_header_length: int = _MAX_HEADER_LENGTH
    max_request_body_size: int = _MAX_REQUEST_BODY_SIZE
    max_held_bytes: int = _MAX_HELD_BYTES
    frame_timeout_s: float = 60.0
    max_push_bytes: int = _MAX_PUSH_BYTES
    max_descriptor: int = 0


DEFAULT_LIMITS = ConnectionLimits()
