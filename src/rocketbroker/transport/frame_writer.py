"""Outgoing frames of one connection, coalesced into few writes."""

import asyncio
import sys
from collections.abc import Sequence

from rocketbroker.codec.remoting.frame import JOIN_LIMIT
from rocketbroker.codec.remoting.handler import Buffer

# In these releases of Python, asyncio does not pause the protocol in ``writelines``: memory would grow without bound
# for a peer that does not read (CVE-2024-12254).
_WRITELINES_PAUSES = not (3, 12) <= sys.version_info < (3, 12, 9) and not (3, 13) <= sys.version_info < (3, 13, 2)


class FrameWriter:
    """Collects the frames of one connection and writes them together.

    Attributes:
        transport: transport to the peer; ``None`` before the connection is made and after it has ended.
        frames: frames, and pieces of large ones, for the next ``flush``.
        large_bytes: bytes of the large ones; an answer to a send is too small to count.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self.frames: list[Buffer] = []
        self.large_bytes = 0
        self._flushes = False

    @property
    def is_open(self) -> bool:
        """True if writes still reach the peer."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the peer has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send encoded frames; do nothing if the connection is closed."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif not _WRITELINES_PAUSES or sum(map(len, buffers)) <= JOIN_LIMIT:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def push(self, frame: bytes) -> None:
        """Send a request of this side."""
        self.write([frame])

    def flush(self) -> None:
        """Write the collected frames."""
        frames = self.frames
        if not frames:
            return
        self.frames = []
        self.large_bytes = 0
        self.write(frames)

    def flush_soon(self) -> None:
        """Coalesce all answers of this loop tick into one write."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self.flush()
