"""Outgoing frames of one connection, coalesced into few writes."""

import asyncio
from collections.abc import Sequence

from rocketbroker.codec.remoting.handler import Buffer

# Frames up to this many bytes are joined before they are written.
_JOIN_LIMIT = 64 * 1024


class FrameWriter:
    """Base of a connection: collects frames and writes them together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        # Bytes of large frames; an answer to a send is too small to count.
        self._out_bytes = 0
        self._flushes = False

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send encoded frames; do nothing if the connection is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif sum(map(len, buffers)) <= _JOIN_LIMIT:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        self._out_bytes = 0
        self.write(out)

    def _flush_soon(self) -> None:
        """Coalesce all answers of this loop tick into one write."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self._flush()
