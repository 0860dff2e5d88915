"""Write path: outgoing frames of one connection coalesced into few writes, also from a second thread and over TLS.

A client's heartbeats must leave while its event loop is blocked by a listener, so a second thread writes to the same
socket. Two things must hold: bytes of two frames never mix, and TLS records keep their order. The loop's writes and the
thread's are under one lock (``SharedWriter``); what the socket did not take whole stays in the transport, and while
something is there the thread does not send. Over TLS, encrypting and handing over are one step under the lock of
``TlsTransport``: the transports of asyncio and uvloop encrypt in the thread of their loop alone.
"""

import asyncio
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, cast

from rocketbroker.codec.remoting.frame import JOIN_LIMIT
from rocketbroker.codec.remoting.handler import Buffer

log = logging.getLogger(__name__)

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


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Transport of a protocol's plain data over one of encrypted data, whose protocol it is.

    Args:
        protocol: gets the decrypted data after the handshake.
        context: settings of TLS.
        server_hostname: name that the certificate of the server must have.

    Attributes:
        ready: done with the handshake; has the error of a failed one.
        lock: held while data is encrypted and sent, so that records keep their order.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext, server_hostname: str) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._plain: asyncio.Transport
        self._in_handshake = True
        self._is_paused = False
        self._error: ssl.SSLError | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        # Nobody awaits the future of a connect that was cancelled.
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self.lock = threading.RLock()

    # -- callbacks of the encrypted transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._plain = cast("asyncio.Transport", transport)
        self._handshake()

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or decrypt."""
        with self.lock:
            self._incoming.write(data)
        if self._in_handshake:
            self._handshake()
        else:
            self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol, or fail the handshake."""
        if not self._in_handshake:
            self._protocol.connection_lost(exc or self._error)
        elif not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError("the peer closed the connection in the TLS handshake"))

    def pause_writing(self) -> None:
        """Tell the protocol that the peer is slow."""
        if not self._in_handshake:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol that the peer has caught up."""
        if not self._in_handshake:
            self._protocol.resume_writing()

    def _handshake(self) -> None:
        try:
            with self.lock:
                self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()  # the alert
            if not self.ready.done():
                self.ready.set_exception(error)
            self._plain.close()
        else:
            self._send()
            self._in_handshake = False
            self._protocol.connection_made(self)
            if not self.ready.done():
                self.ready.set_result(None)
            self._read()

    def _read(self) -> None:
        """Give decrypted data to the protocol; close at the end of the data and after an invalid record."""
        while not self._is_paused and not self._plain.is_closing():
            buffer = self._protocol.get_buffer(-1)
            try:
                with self.lock:
                    number = cast("int", self._tls.read(len(buffer), buffer))  # type: ignore[arg-type]  # any buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:  # an alert too, such as the refusal of a client's certificate in TLS 1.3
                self._note(error)
                number = 0
            if not number:
                self.close()
                return
            self._protocol.buffer_updated(number)
        self._send()

    def _note(self, error: ssl.SSLError) -> None:
        self._error = error
        log.warning("connection to %s: TLS failed: %s; closing", self.get_extra_info("peername"), error)

    def _send(self) -> None:
        """Send what is encrypted, such as alerts and key updates."""
        with self.lock:
            if data := self._outgoing.read():
                self._plain.write(data)

    # -- transport of the protocol

    def encrypt(self, data: Buffer) -> bytes:
        """Return the records of some data, to be sent before any other; the caller holds ``lock``."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and send."""
        with self.lock:
            try:
                for data in list_of_data:
                    self._plain.write(self.encrypt(data))
            except ssl.SSLError as error:  # such as a renegotiation, which TLS 1.3 does not have
                self._note(error)
                self._plain.abort()

    def close(self) -> None:
        """Send what was written and the end of the data, then close."""
        if self._plain.is_closing():
            return
        with self.lock, suppress(ssl.SSLError):
            self._tls.unwrap()  # raises as the peer has not answered yet
        self._send()
        self._plain.close()

    def abort(self) -> None:
        """Close at once."""
        self._plain.abort()

    def is_closing(self) -> bool:
        """Return true if the connection is closed or about to be."""
        return self._plain.is_closing()

    def pause_reading(self) -> None:
        """Give no more data to the protocol."""
        self._is_paused = True
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Give data to the protocol again, decrypted data first."""
        self._is_paused = False
        self._plain.resume_reading()
        self._loop.call_soon(self._read)

    def get_write_buffer_size(self) -> int:
        """Return the encrypted bytes that the peer has not taken."""
        return self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bounds at which the peer is slow."""
        self._plain.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return facts of the encrypted transport, and the TLS object."""
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)


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
