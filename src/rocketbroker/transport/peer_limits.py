"""Bounds of the memory and time that one peer may cost: limits, receive buffer, held memory, progress.

A peer may claim a frame of 16 MiB and send little of it, send a byte a second, send requests and take no answers, or do
each on many connections. A length is checked before memory is taken for it, and the memory of an incomplete frame is at
most twice what was received (``ReceiveBuffer``). What a connection keeps between events is accounted for, and above
``max_held_bytes`` in all, the one that has kept most for longest is dropped (``HeldMemory``, ``Endpoint.hold``). A peer
that makes no progress is dropped in time even where memory is not short (``PeerProgress``): what it has not taken also
holds disk blocks of deleted log files.
"""

from collections.abc import Callable
from typing import NamedTuple

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH

# Unsent answer bytes above which a connection is not read until the peer has taken some.
WRITE_HIGH_WATER = 1024 * 1024


class ConnectionLimits(NamedTuple):
    """Limits on what one peer may cost; sizes in bytes.

    Attributes:
        frame_max_length: largest value of a frame's length field.
        max_connections: open connections; 0 is unlimited.
        max_connections_cause: what sets their number, for the log.
        max_connections_per_address: connections of one address; 0 is as many as are free, unlimited for trusted peers.
        write_high_water: unsent answers above which a connection is not read.
        write_low_water: unsent answers at which it is read again; 0 is a quarter of ``write_high_water``.
        max_idle_s: seconds without progress after which a connection is closed.
        send_buffer: kernel send buffer of a connection; 0 keeps the kernel's default.
        receive_buffer: kernel receive buffer of a connection; 0 keeps the kernel's default.
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
    max_connections_cause: str = "maxConnections"
    max_connections_per_address: int = 0
    write_high_water: int = WRITE_HIGH_WATER
    write_low_water: int = 0
    max_idle_s: float = 120.0
    send_buffer: int = 0
    receive_buffer: int = 0
    # A message's properties have at most 32,767 bytes, JSON writes up to six for each, and other fields add few.
    max_header_length: int = 256 * 1024
    max_request_body_size: int = 1024 * 1024
    max_held_bytes: int = 512 * 1024 * 1024
    frame_timeout_s: float = 60.0
    max_push_bytes: int = 1024 * 1024
    slow_request_s: float = 0.0
    max_descriptor: int = 0


DEFAULT_LIMITS = ConnectionLimits()

# Bytes that one read of a connection can take.
SHARED_SIZE = 256 * 1024


class ReceiveBuffer:
    """Provide room for the next read and keep the incomplete frame that a read leaves.

    All connections of an endpoint read into one shared buffer, because one read event is handled completely before the
    next begins. Each connection keeps its own incomplete frame. Memory for a large frame grows with the bytes received,
    never with the length that the peer claims.

    Args:
        shared: the buffer that all connections of the endpoint read into.
    """

    __slots__ = ("_large", "_length", "_rest", "_shared")

    def __init__(self, shared: memoryview) -> None:
        self._shared = shared
        self._rest = b""
        self._large: bytearray | None = None
        self._length = 0

    @property
    def held(self) -> int:
        """Memory of the incomplete frame, in bytes."""
        return len(self._rest) if self._large is None else len(self._large)

    @property
    def received_bytes(self) -> int:
        """Bytes received of the incomplete frame."""
        return len(self._rest) if self._large is None else self._length

    def room(self) -> memoryview:
        """Return the memory that the next read fills; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._length :]
        rest = self._rest
        if not rest:
            return self._shared
        self._shared[: len(rest)] = rest
        return self._shared[len(rest) :]

    def received(self, count: int) -> memoryview:
        """Return all unconsumed bytes after ``count`` bytes were read into ``room()``."""
        if self._large is not None:
            self._length += count
            return memoryview(self._large)[: self._length]
        return self._shared[: len(self._rest) + count]

    def keep(self, rest: memoryview, needed: int) -> None:
        """Keep ``rest``, the received part of a frame that has ``needed`` bytes when complete."""
        if needed <= len(self._shared) or (self._large is None and 2 * len(rest) <= len(self._shared)):
            # Large frames start small too: a peer that claims much and sends little costs little.
            self._rest = bytes(rest)
            self._large = None
            return
        if self._large is None or len(rest) == len(self._large):
            grown = bytearray(min(needed, 2 * len(rest)))
            grown[: len(rest)] = rest
            self._large = grown
        elif len(rest) != self._length:
            self._large[: len(rest)] = bytes(rest)
        self._length = len(rest)
        self._rest = b""

    def clear(self) -> None:
        """Forget all bytes: they were consumed."""
        self._rest = b""
        self._large = None


class HeldMemory:
    """Account of incomplete frames, bodies of pending requests and unsent answers.

    Args:
        measure: returns the bytes held now.
        on_change: called with each change, in bytes.
        time: time of the event loop.

    Attributes:
        bytes: memory held, as last accounted.
        since: time of the last progress while holding memory.
        is_settled: nothing was held when last accounted, and nothing of size has come since.
    """

    def __init__(self, measure: Callable[[], int], on_change: Callable[[int], None], time: Callable[[], float]) -> None:
        self._measure = measure
        self._on_change = on_change
        self._time = time
        self.bytes = 0
        self.since = 0.0
        self.is_settled = True

    def settle(self, *, progressed: bool = False) -> None:
        """Account for the memory held until a later event."""
        held = self._measure()
        if progressed or not self.bytes:
            self.since = self._time()
        change, self.bytes = held - self.bytes, held
        self.is_settled = held == 0
        if change:
            self._on_change(change)


# Bytes of a frame that extend its timeout by one second, for slow links.
_SLOWEST_RATE = 64 * 1024


class PeerProgress:
    """Detect a peer that is late with a frame or with taking its answers."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.frame_began_at = 0.0
        # Unsent bytes at the last check, and the time when the peer last took some.
        self._unsent = 0
        self.taken_at = 0.0

    def lateness(self, now: float, unsent: int, received: int) -> str:
        """Return the reason to drop the peer, or an empty text.

        Args:
            now: time of the event loop.
            unsent: bytes written for the peer that it has not taken.
            received: bytes received of the incomplete frame.
        """
        if not unsent or unsent < self._unsent:
            self.taken_at = now
        self._unsent = unsent
        limits = self._limits
        if now - self.taken_at > limits.max_idle_s:
            return (
                f"it took none of the {unsent} bytes that wait for it within {limits.max_idle_s:g} s "
                "(serverChannelMaxIdleTimeSeconds)"
            )
        late_s = now - self.frame_began_at
        if received and late_s > limits.frame_timeout_s + received / _SLOWEST_RATE:
            return (
                f"its frame began {late_s:.0f} s ago and is incomplete at {received:,} bytes; the limit is "
                f"{limits.frame_timeout_s:g} s plus 1 s per 64 KiB (frameTimeoutSeconds)"
            )
        return ""
