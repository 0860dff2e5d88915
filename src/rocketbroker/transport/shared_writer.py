"""Writer of a client's connection that a second thread uses while the event loop is blocked."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import nullcontext

from rocketbroker.codec.remoting.handler import Buffer
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.tls_transport import TlsTransport

# Bytes from which a frame gains nothing by waiting for others.
_LARGE_FRAME = 16 * 1024
# Seconds for a frame to fit into the socket's buffer.
_SEND_TIMEOUT_S = 1.0


class SharedWriter(FrameWriter):
    """FrameWriter whose frames never mix with one that another thread sends.

    The lock covers each write of the loop. A write that the socket did not take whole stays in the transport, and while
    something is there the other thread does not send.
    """

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
