"""Limits for peers of a server or client (org.apache.rocketmq.remoting.netty.NettyServerConfig)."""

from typing import NamedTuple

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH

# Unsent answer bytes above which a connection is not read until the peer has taken some.
WRITE_HIGH_WATER = 1024 * 1024
# A message's properties have at most 32,767 bytes, JSON writes up to six for each, and other fields add few.
_MAX_HEADER_LENGTH = 256 * 1024
_MAX_REQUEST_BODY_SIZE = 1024 * 1024
_MAX_HELD_BYTES = 512 * 1024 * 1024
# Requests to a peer that is slow to take its answers.
_MAX_PUSH_BYTES = 1024 * 1024


class ConnectionLimits(NamedTuple):
    """Limits on what one peer may cost; sizes in bytes.

    Attributes:
        frame_max_length: largest value of a frame's length field.
        max_connections: open connections; 0 is unlimited.
        max_connections_per_address: connections of one address; 0 is as many as are free, unlimited for trusted peers.
        write_high_water: unsent answers above which a connection is not read.
        max_idle_s: seconds without progress after which a connection is closed.
        send_buffer: kernel send buffer of a connection; 0 keeps the kernel's default.
        max_header_length: header of a frame.
        max_request_body_size: body of a request, unless its route takes large bodies.
        max_held_bytes: memory of all connections between events: incomplete frames, pending requests, unsent answers.
        frame_timeout_s: seconds from the first byte of a frame to its last; more on a slow link.
        max_descriptor: lowest descriptor that is rejected; 0 accepts any.
        max_push_bytes: requests that may queue up for a peer that is slow to read.
        slow_request_s: seconds above which a request is logged; 0 logs none.
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
    slow_request_s: float = 0.0
    max_descriptor: int = 0


DEFAULT_LIMITS = ConnectionLimits()
