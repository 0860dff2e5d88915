"""TLS over the transports of asyncio and uvloop: both ends, and ports that serve TLS and plain text (TlsHelper).

A client's heartbeats leave from a second thread, which must encrypt too, and a server may decide only by the first byte
whether a connection is encrypted. The TLS of asyncio and of uvloop allows neither. Encrypting and handing over are one
step under the lock of ``TlsTransport``, so that records keep their order.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.handler import Buffer
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.access import is_this_machine
from rocketbroker.transport.failed_connections import FailedConnections, peer_key
from rocketbroker.transport.handshake_limits import HandshakeLimits, Ticket

if TYPE_CHECKING:
    from rocketbroker.common.config.tls_settings import TlsClientSettings, TlsSettings
    from rocketbroker.transport.tls_contexts import WatchedContext

log = logging.getLogger(__name__)

# Gives the context of the next connection: files of certificates change.
CurrentContext = Callable[[], ssl.SSLContext]

_HINTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls.server.need.client.auth demands a certificate of the client",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the issuer of tls.server.certPath",
    "UNSUPPORTED_PROTOCOL": "the client offers only versions of TLS that tls.protocols excludes",
    "NO_SHARED_CIPHER": "the client offers none of tls.ciphers",
}
_NO_ISSUER: Final = "tls.server.trustCertPath does not have its issuer"
# By the numbers of X509_V_ERR_ in OpenSSL's x509_vfy.h, whose texts differ between versions.
_VERIFY_HINTS: Final = {
    3: "tls.server.trustCertPath has revocation lists, but none of its issuer; append one",
    10: "the client needs a new one",
    11: "the revocation list in tls.server.trustCertPath is for later, or this machine's time is wrong",
    12: "replace the revocation list in tls.server.trustCertPath by the issuer's present one",
    18: _NO_ISSUER,
    19: _NO_ISSUER,
    20: _NO_ISSUER,
    21: _NO_ISSUER,
    23: "a revocation list in tls.server.trustCertPath has it",
}

# Bytes that OpenSSL is given at a time.
_PIECE: Final = 64 * 1024


def shown_peer(peer: object) -> str:
    """Return the address of a peer for the log."""
    return join_address(*peer[:2]) if isinstance(peer, tuple) else str(peer)


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Transport of a protocol's plain data over one of encrypted data, whose protocol it is; the client's end.

    Args:
        protocol: gets the decrypted data after the handshake.
        context: settings of TLS.
        server_hostname: name that the certificate of the server must have; ``None`` for the server's end.

    Attributes:
        ready: done with the handshake; has the error of a failed one.
        lock: held while data is encrypted and sent, so that records keep their order.
    """

    def __init__(
        self, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._plain: asyncio.Transport
        self._in_handshake = True
        self._is_paused = self._is_at_end = False
        self._error: ssl.SSLError | None = None
        # Encrypted bytes that OpenSSL has not been given.
        self._received = memoryview(b"")
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
        self._received = memoryview(bytes(self._received) + data if self._received else data)
        if self._in_handshake:
            self._handshake()
        else:
            self._read()

    def eof_received(self) -> bool:
        """Decrypt the rest, also that of a pause, and then close."""
        if self._in_handshake:
            return False
        self._is_at_end = True
        self._read()
        return True

    @property
    def unread_bytes(self) -> int:
        """Encrypted bytes that are kept while reading is paused."""
        return len(self._received) + self._incoming.pending

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol, or fail the handshake."""
        if not self._in_handshake:
            self._protocol.connection_lost(exc or self._error)
        else:
            self._fail_handshake(exc or ConnectionResetError("the peer closed the connection in the TLS handshake"))

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
                while True:
                    try:
                        self._tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        if not self._feed():
                            raise
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()  # the alert
            self._fail_handshake(error)
            self._plain.close()
        else:
            self._send()
            self._in_handshake = False
            self._end_handshake()
            self._read()

    def _end_handshake(self) -> None:
        """Tell the protocol that the handshake is over."""
        self._protocol.connection_made(self)
        if not self.ready.done():
            self.ready.set_result(None)

    def _fail_handshake(self, error: Exception) -> None:
        """Tell those who wait for the handshake that it failed."""
        if not self.ready.done():
            self.ready.set_exception(error)

    def _read(self) -> None:
        """Give decrypted data to the protocol; close at the end of the data and after an invalid record."""
        # The buffer is filled, as from a socket: a protocol takes a full one for a peer that has more to send.
        while not self._is_paused and not self._plain.is_closing():
            buffer = memoryview(self._protocol.get_buffer(-1))
            number, is_over = self._decrypt(buffer)
            if number:
                self._protocol.buffer_updated(number)
            if is_over:
                self.close()
                return
            if number < len(buffer):
                break
        self._send()

    def _decrypt(self, buffer: memoryview) -> tuple[int, bool]:
        """Fill a buffer with what has been received; return the bytes, and true after the last ones."""
        filled, incoming = 0, self._incoming
        read, undelivered = self._tls.read, self._tls.pending
        with self.lock:
            while filled < len(buffer):
                # A read without anything to read takes as long as ten records: the error is made and caught.
                if not (incoming.pending or incoming.eof or undelivered() or self._feed()):
                    break
                try:
                    number = cast("int", read(len(buffer) - filled, buffer[filled:]))
                except ssl.SSLWantReadError:
                    if not self._feed():
                        break
                    continue
                except ssl.SSLError as error:  # an alert too, such as the refusal of a client's certificate in TLS 1.3
                    self._note(error)
                    number = 0
                if not number:
                    return filled, True
                filled += number
        return filled, False

    def _feed(self) -> bool:
        """Give OpenSSL some of the received bytes, or their end; return false if there are none.

        Its memory grows with the bytes that it holds, and never shrinks.
        """
        if self._received:
            piece, self._received = self._received[:_PIECE], self._received[_PIECE:]
            self._incoming.write(piece)
            return True
        if self._is_at_end and not self._incoming.eof:
            self._incoming.write_eof()
            return True
        return False

    def _note(self, error: ssl.SSLError) -> None:
        self._error = error
        # A client that is killed ends its connection without the end of the data.
        level = logging.DEBUG if isinstance(error, ssl.SSLEOFError) else logging.WARNING
        peer = shown_peer(self.get_extra_info("peername"))
        log.log(level, "connection to %s: TLS failed: %s; closing", peer, error)

    def _send(self) -> None:
        """Send what is encrypted, such as alerts and key updates."""
        if self._outgoing.pending:
            with self.lock:
                if data := self._outgoing.read():
                    self._plain.write(data)

    # -- transport of the protocol

    def encrypt(self, data: Buffer) -> bytes:
        """Return the records of some data, to be sent before any other; the caller holds ``lock``."""
        rest = memoryview(data).cast("B")
        records = []
        while rest:
            rest = rest[self._tls.write(rest[:_PIECE]) :]
            records.append(self._outgoing.read())
        return b"".join(records)

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and send; do nothing if the connection is closed."""
        if self._plain.is_closing():
            return
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


async def open_connection(
    protocol: asyncio.BufferedProtocol, host: str, port: int, tls: CurrentContext | None = None
) -> None:
    """Connect a protocol to a server, over TLS if there is a context.

    Raises:
        OSError: The server does not accept connections, or the handshake failed.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.create_connection(lambda: protocol, host, port)
        return
    secure = TlsTransport(protocol, tls(), host)
    transport, _ = await loop.create_connection(lambda: secure, host, port)
    try:
        await secure.ready
    except BaseException:
        transport.abort()
        raise


# Seconds in which a peer must end its handshake, and the first byte of a handshake record (RFC 8446, 5.1). A frame
# begins with its length, whose first byte is that only above 369 MB, which no limit allows.
HANDSHAKE_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 10.0
#: Most bytes of a handshake that waits. A client's hello has some kilobytes of post-quantum keys at most.
MOST_BEFORE_HANDSHAKE: Final = 64 * 1024
_HANDSHAKE: Final = b"\x16"


class Securable(Protocol):
    """Protocol of a server that can change to an encrypted transport before it has read anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or abort its connection."""

    def secured(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what the connection holds."""

    def pause_writing(self) -> None:
        """Stop reading from a slow peer."""

    def resume_writing(self) -> None:
        """Read again."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read."""


class ServerTls:
    """TLS of a server's ports, and what they refused.

    Args:
        context: settings of TLS for new connections.
        plain: serve connections in plain text too (``tls.server.mode=permissive``).

    Attributes:
        failed: number of handshakes that failed.
        failed_connections: those of all ports with these settings, by address.
        handshakes: bounds of handshakes.
        plain_text: number of connections in plain text from other machines.
        last_plain_text: IP address of the last one.
    """

    def __init__(self, context: "WatchedContext", *, plain: bool) -> None:
        self._context = context
        self.plain = plain
        self.failed = 0
        self.failed_connections = FailedConnections()
        self.handshakes = HandshakeLimits(self.failed_connections)
        self.plain_text = 0
        self.last_plain_text = ""
        self._refusals = RefusalLog(log)

    @property
    def expires_ms(self) -> int | None:
        """Time at which the certificate expires, in ms since 1970, if it is known."""
        return self._context.expires_ms

    @property
    def context(self) -> ssl.SSLContext:
        """Settings of TLS for a new connection."""
        return self._context.current

    def note_plain_text(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection in plain text."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple) and isinstance(own, tuple) and not is_this_machine(peer[0], own[0]):
            self.plain_text += 1
            self.last_plain_text = peer[0]

    def refuse(self, peer: object, reason: str) -> None:
        """Count and log a connection that ends before it is served."""
        self.failed += 1
        self._refusals.add(f"TLS: the connection of {shown_peer(peer)} is closed: {reason}")


class OutgoingTls:
    """TLS of the connections that a process opens (blocks: reads files).

    Attributes:
        outgoing: returns the settings of the next connection; ``None`` for plain text.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(self, config: "TlsClientSettings") -> None:
        # Settings import pydantic, which clients without TLS, such as mqadmin at its start, do not need.
        from rocketbroker.transport.tls_contexts import watched_client_context

        client = watched_client_context(config)
        self._contexts = [] if client is None else [client]
        self.outgoing: CurrentContext | None = None if client is None else lambda: client.current

    def watch(self, tasks: TaskOwner) -> None:
        """Look at the files every 10 s from now on."""
        if self._contexts:
            tasks.every(_LOOK_S, self.renew, "certificates")

    async def renew(self) -> None:
        """Look at the files, and make contexts from those that have changed."""
        for context in self._contexts:
            await context.renew()


class RemotingTls(OutgoingTls):
    """TLS of the ports and of the outgoing connections of one server (blocks: reads files).

    Attributes:
        server: TLS of its ports; ``None`` if they serve plain text alone.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(self, config: "TlsSettings") -> None:
        from rocketbroker.transport.tls_contexts import watched_server_context

        super().__init__(config)
        self.server: ServerTls | None = None
        server = watched_server_context(config)
        if server is not None:
            self._contexts.append(server)
            self.server = ServerTls(server, plain=config.tls_server_mode == "permissive")

    def runtime_info(self) -> dict[str, str]:
        """Return the keys of the answer to GET_BROKER_RUNTIME_INFO."""
        server = self.server
        if server is None or not server.plain_text:
            return {}
        return {"plainTextConnections": str(server.plain_text), "lastPlainTextPeer": server.last_plain_text}


class _ServerTransport(TlsTransport):
    """The server's end of a connection; its protocol has the peer from before the handshake."""

    def __init__(self, protocol: Securable, tls: ServerTls, ticket: Ticket) -> None:
        super().__init__(cast("asyncio.BufferedProtocol", protocol), tls.context, None)
        self._server_tls = tls
        self._ticket = ticket
        self._deadline: asyncio.TimerHandle | None = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._give_up)

    def _end_handshake(self) -> None:
        self._end_wait()
        self._ticket.end(failed=False)

    def _fail_handshake(self, error: Exception) -> None:
        if self._end_wait():
            self._ticket.end(failed=True)
            self._server_tls.refuse(self.get_extra_info("peername"), f"the handshake failed: {_cause(error)}")

    def _give_up(self) -> None:
        self._deadline = None
        self._ticket.end(failed=True)
        self._server_tls.refuse(
            self.get_extra_info("peername"), f"its handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s"
        )
        self._plain.abort()

    def _end_wait(self) -> bool:
        """End the wait for the handshake; return false if that was done: each connection is refused once."""
        waited, self._deadline = self._deadline, None
        if waited is not None:
            waited.cancel()
        return waited is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol."""
        if self._in_handshake:
            self._fail_handshake(exc or ConnectionResetError("the peer closed the connection"))
        self._protocol.connection_lost(exc or self._error)


def _cause(error: Exception) -> str:
    """Return the reason of a failed handshake, with what to do about the usual ones."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text, hint = f"the client's certificate: {error.verify_message}", _VERIFY_HINTS.get(error.verify_code)
    else:
        text = getattr(error, "reason", None) or str(error)
        hint = _HINTS.get(text)
    return f"{text} ({hint})" if hint else text


class FirstByte(asyncio.Protocol):
    """Protocol of a new connection until its first byte tells TLS from plain text (NettyRemotingServer).

    The peer is admitted before that, so that limits on connections hold for those that never send a byte.

    Args:
        protocol: serves the connection.
        tls: TLS of the port.
    """

    def __init__(self, protocol: Securable, tls: ServerTls) -> None:
        self._protocol = protocol
        self._tls = tls
        self._plain: asyncio.Transport
        # Begin of a handshake that waits for its place, and when that ends.
        self._received = b""
        self._ticket: Ticket | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer."""
        self._plain = cast("asyncio.Transport", transport)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol that no byte came, or no handshake began."""
        self._end_wait()
        if self._ticket is not None:
            self._ticket.end(failed=False)
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin a handshake, serve in plain text, or close."""
        if self._plain.is_closing():
            return
        if self._ticket is not None:
            self._received += data
            if len(self._received) > MOST_BEFORE_HANDSHAKE:
                self._refuse(f"it sent more than {MOST_BEFORE_HANDSHAKE:,} bytes before its handshake")
        elif data[:1] == _HANDSHAKE:
            self._received = data
            self._ask()
        elif self._tls.plain:
            self._tls.note_plain_text(self._plain)
            self._plain.set_protocol(cast("asyncio.BaseProtocol", self._protocol))
            deliver(self._protocol, data)
        else:
            peer = self._plain.get_extra_info("peername")
            self._tls.refuse(peer, "it is in plain text, and tls.server.mode=enforcing demands TLS")
            self._tls.failed_connections.add(peer_key(peer))
            self._plain.close()

    def _ask(self) -> None:
        """Begin the handshake, wait for a place, or close."""
        key = peer_key(self._plain.get_extra_info("peername"))
        self._ticket = ticket = self._tls.handshakes.ask(key, self._begin)
        if ticket is None:
            self._refuse("too many handshakes wait, or too many of its address have failed")
        elif ticket.is_running:
            self._begin()
        else:
            # It is read on, so that one that leaves gives up its place.
            self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._give_up)

    def _begin(self) -> None:
        assert self._ticket is not None
        self._end_wait()
        if self._plain.is_closing():
            self._ticket.end(failed=False)
            return
        secure = _ServerTransport(self._protocol, self._tls, self._ticket)
        self._plain.set_protocol(secure)
        self._protocol.secured(secure)
        secure.connection_made(self._plain)
        secure.data_received(self._received)

    def _give_up(self) -> None:
        self._refuse(f"it waited {HANDSHAKE_TIMEOUT_S:g} s for the place of a handshake")

    def _refuse(self, reason: str) -> None:
        self._tls.refuse(self._plain.get_extra_info("peername"), reason)
        self._plain.abort()

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def deliver(protocol: Securable, data: Buffer) -> None:
    """Give received data to a protocol that reads into its own memory."""
    rest = memoryview(data)
    while rest:
        room = protocol.get_buffer(len(rest))
        size = min(len(room), len(rest))
        room[:size] = rest[:size]
        protocol.buffer_updated(size)
        rest = rest[size:]
