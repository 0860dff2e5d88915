"""Write path: outgoing frames of one connection coalesced into few writes, also from a second thread and over TLS.

A client's heartbeats must leave while its event loop is blocked by a listener, so a second thread writes to the same
socket. Two things must hold: bytes of two frames never mix, and TLS records keep their order. The loop's writes and the
thread's are under one lock (``SharedWriter``); what the socket did not take whole stays in the transport, and while
something is there the thread does not send. Over TLS, encrypting and handing over are one step under the lock of
``TlsTransport``: the transports of asyncio and uvloop encrypt in the thread of their loop alone.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext

from rocketbroker.codec.remoting.frame import JOIN_LIMIT
from rocketbroker.codec.remoting.handler import Buffer
from rocketbroker.transport.tls_transport import TlsTransport

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

    @property
    def undecrypted_bytes(self) -> int:
        """Bytes of the peer that wait to be decrypted."""
        return self.transport.unread_bytes if isinstance(self.transport, TlsTransport) else 0

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


# Bytes from which a frame gains nothing by waiting for others.
_LARGE_FRAME = 16 * 1024
# Seconds for a frame to fit into the socket's buffer.
_SEND_TIMEOUT_S = 1.0


class SharedWriter(FrameWriter):
    """FrameWriter whose frames never mix with one that another thread sends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._lock = threading.RLock()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send encoded frames; do nothing if the connection is closed."""
        with self._lock:
            super().write(buffers)

    def push(self, frame: bytes) -> None:
        """Send a request together with the others of this loop tick; a large one at once."""
        self.frames.append(frame)
        if len(frame) > _LARGE_FRAME:
            self.flush()
        else:
            self.flush_soon()

    def write_from_thread(self, frame: bytes) -> bool:
        """Send a frame past the transport; return false if that is impossible now."""
        with self._lock:
            transport = self.transport
            tls = transport if isinstance(transport, TlsTransport) else None
            with tls.lock if tls is not None else nullcontext():
                if transport is None or not self.is_open or self.unsent_bytes:
                    return False
                shared = transport.get_extra_info("socket")
                try:
                    with socket.fromfd(shared.fileno(), shared.family, shared.type) as sock:
                        _send(sock, frame if tls is None else tls.encrypt(frame))
                except OSError:
                    return False  # also when the transport has closed the socket
                return True


def _send(sock: socket.socket, frame: bytes) -> None:
    sock.settimeout(_SEND_TIMEOUT_S)
    try:
        sock.sendall(frame)
    except OSError:
        # A part may have left: nothing can follow it.
        sock.shutdown(socket.SHUT_RDWR)
        raise
