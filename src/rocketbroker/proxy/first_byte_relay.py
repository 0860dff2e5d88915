"""Relay of a port with TLS: the first byte decides to which local socket a connection goes, for TLS or plain text.

A TLS handshake begins with 0x16, HTTP/2 without TLS with a letter. grpcio can listen for either, but can neither look
first nor take over a connection that somebody else accepted.

The relay bounds what grpcio does not: connections, and the memory of incomplete requests. grpcio keeps the parts of a
request until it is complete, up to grpcMaxInboundMessageSize for each call, so that calls which are never completed
fill the memory by one connection. What grpcio may hold of a connection are the bytes that came in, less the requests
that were handled. This is an estimate: an allowance for headers and framing is taken off with each request, or a
connection that lives long would look guilty. A client that completes small requests meanwhile hides some bytes by that,
with each call 0.5 KiB and the metadata that HPACK leaves out.

It also bounds TLS handshakes as the other ports do, by the records that pass (``relayed_handshake``).
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.event_log import EventLog, RefusalLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.relayed_handshake import RelayedHandshake
from rocketbroker.transport.endpoint import ConnectionCount, rejected_by_cause
from rocketbroker.transport.failed_connections import FailedConnections, admitting, peer_key
from rocketbroker.transport.handshake_limits import HandshakeLimits
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.remoting_server import bind_sockets, close_servers, close_sockets, listen, port_of
from rocketbroker.transport.tls_transport import MOST_BEFORE_HANDSHAKE

log = logging.getLogger(__name__)

_BACKLOG = 1024
_TLS_HANDSHAKE = 0x16
_LINGER_S = 5.0
# Allowance for headers of a request that are no metadata, and the part of its size, as a power of 2, for framing.
_HEADER_BYTES = 512
_FRAMING_SHIFT = 6
# Window updates take less than this part of the replies that they are for.
_WINDOW_SHIFT = 10


class FirstByteRelay:
    """Accept connections and relay them to a socket for TLS or one for plain text.

    Both ends of a relayed connection close together. What one end sends is read no faster than the other takes it.

    Args:
        host: address to bind; empty for all addresses.
        port: port to bind; 0 picks a free one, which ``port`` then holds.
        folder: private folder for the addresses of relayed connections.
        plain: path of the socket for plain text; without one, connections without TLS are closed.
        tls: path of the socket for TLS.
        first_byte_s: seconds after which a connection without a byte is closed.
        limits: limits on connections, and on the memory of incomplete requests.

    Attributes:
        held_bytes: bytes of requests that are incomplete or wait to be handled.
        failed: failed connections by address.
        handshakes: bounds of TLS handshakes.
        failed_handshakes: number of those that failed, and of connections in plain text where it is rejected.
    """

    def __init__(
        self,
        host: str,
        port: int,
        folder: Path,
        plain: Path | None,
        tls: Path,
        first_byte_s: float,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        self.host, self.port = host, port
        self._folder, self._plain, self._tls = folder, plain, tls
        self.first_byte_s = first_byte_s
        self.held_bytes = 0
        self.failed = FailedConnections()
        self.handshakes = HandshakeLimits(self.failed)
        self.failed_handshakes = 0
        self._max_held_bytes = limits.max_held_bytes
        self._connections = ConnectionCount(limits)
        self._rejections, self._events = RefusalLog(log), EventLog(log)
        self._tasks = TaskOwner("FirstByteRelay")
        self._servers: list[asyncio.Server] = []
        self._ends: set[_End] = set()
        # Clients by the path that their connection is relayed from.
        self._clients: dict[str, _Accepted] = {}
        self._count = 0
        self._empty = asyncio.Event()

    @property
    def rejected_connections(self) -> Mapping[str, int]:
        """Number of rejected connections by cause."""
        return rejected_by_cause(self._connections, self.failed)

    async def start(self) -> None:
        """Bind the port and accept connections.

        Raises:
            ConfigError: The address cannot be bound; the text names the address and the cause.
        """
        loop = asyncio.get_running_loop()
        new_connection = admitting(self.failed, lambda: _Accepted(self))
        sockets = bind_sockets(self.host, self.port)
        self.port = port_of(sockets[0])
        try:
            for sock in sockets:
                listen(sock, _BACKLOG)
                self._servers.append(await loop.create_server(new_connection, sock=sock, backlog=_BACKLOG))
        except BaseException:
            await self.stop_accepting()
            close_sockets(sockets)
            raise

    async def stop_accepting(self) -> None:
        """Release the port; connections stay open."""
        servers, self._servers = self._servers, []
        await close_servers(servers)

    async def stop(self) -> None:
        """Close connections, those that the other end has closed after their last bytes were sent."""
        await self.stop_accepting()
        # Handshakes first: the end of one would begin another.
        for end in self._ends:
            end.release_handshake()
            if end.other is None:
                end.transport.abort()
        await self._tasks.stop()
        if self._ends:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), _LINGER_S)
            except TimeoutError:
                for end in self._ends:
                    end.transport.abort()

    def client_of(self, path: str) -> str:
        """Return ``ip:port`` of the client whose connection is relayed from a path."""
        client = self._clients.get(path)
        return path if client is None else client.peer

    # -- requests

    def handled(self, path: str, size: int) -> None:
        """Note that a request of a size, with its metadata, is complete."""
        client = self._clients.get(path)
        if client is not None:
            self._release(client, size + (size >> _FRAMING_SHIFT) + _HEADER_BYTES)

    def replied(self, path: str, size: int) -> None:
        """Note replies of a size: the client sends window updates for them, which are no requests."""
        client = self._clients.get(path)
        if client is not None:
            self._release(client, size >> _WINDOW_SHIFT)

    def _release(self, client: "_Accepted", size: int) -> None:
        released = min(client.held_bytes, size)
        client.held_bytes -= released
        self.held_bytes -= released

    def received(self, client: "_Accepted", size: int) -> None:
        """Note bytes of a client; above the limit, close the connection that holds most.

        For how long does not count, unlike at a remoting port: an estimate may be off by a little for ever.
        """
        client.held_bytes += size
        self.held_bytes += size
        while self.held_bytes > self._max_held_bytes:
            worst = max([client, *self._clients.values()], key=lambda each: each.held_bytes)
            log.warning(
                "connection to %s: closing, as it holds %s of %s bytes of incomplete requests, above the limit of %s "
                "(maxHeldBytes)",
                worst.peer,
                f"{worst.held_bytes:,}",
                f"{self.held_bytes:,}",
                f"{self._max_held_bytes:,}",
            )
            self._forget_bytes(worst)
            worst.transport.abort()

    def _forget_bytes(self, client: "_Accepted") -> None:
        self.held_bytes -= client.held_bytes
        client.held_bytes = 0

    # -- connections

    def accepted(self, client: "_Accepted") -> bool:
        """Keep a client's connection until it is lost; return false if there are too many."""
        descriptor = client.transport.get_extra_info("socket").fileno()
        if not self._connections.enter(client.peer, descriptor):
            return False
        self._ends.add(client)
        return True

    def closed(self, client: "_Accepted") -> None:
        """Forget a client's connection."""
        self._connections.leave(client.peer)
        self._forget_bytes(client)
        self._left(client)

    def connected(self, end: "_Relayed") -> None:
        """Keep a connection to grpcio until it is lost."""
        self._ends.add(end)

    def disconnected(self, end: "_Relayed") -> None:
        """Forget a connection to grpcio, and the client that it was relayed for."""
        self._clients.pop(end.path, None)
        self._left(end)

    def _left(self, end: "_End") -> None:
        self._ends.discard(end)
        if not self._ends:
            self._empty.set()

    def begin(self, client: "_Accepted") -> None:
        """Relay a connection from its first bytes on, one with TLS when there is a place for its handshake."""
        key = peer_key(client.transport.get_extra_info("peername"))
        if client.first_bytes[0] == _TLS_HANDSHAKE:
            # It is read on while it waits, so that one that leaves gives up its place.
            client.handshake = RelayedHandshake(
                self.handshakes,
                key,
                lambda: self._start(client, self._tls),
                lambda reason: self.reject(client, reason),
            )
        elif self._plain is None:
            self.failed.add(key)
            self.reject(client, "it has no TLS; connect by TLS, or set grpcPlainTextEnable=true")
        else:
            self._start(client, self._plain)

    def reject(self, client: "_Accepted", reason: str) -> None:
        """Close a client's connection before it is served; count it, and log the reason."""
        self._note_failure(f"connection to {client.peer}: closing, as {reason}")
        client.release_handshake()
        client.transport.abort()
        if client.other is not None:  # the client may have gone before
            client.other.abort()

    def handshake_failed(self, client: "_Accepted") -> None:
        """Count and log a handshake that ended with its connection."""
        by_whom = "the client closed it" if client.transport.is_closing() else "gRPC refused it"
        self._note_failure(f"connection to {client.peer}: the handshake failed: {by_whom}")

    def _note_failure(self, text: str) -> None:
        self.failed_handshakes += 1
        self._rejections.add(text)

    def _start(self, client: "_Accepted", target: Path) -> None:
        if client.transport.is_closing():
            client.release_handshake()
            return
        client.transport.pause_reading()
        self._tasks.start(self._connect(client, target), "connect")

    async def _connect(self, client: "_Accepted", target: Path) -> None:
        self._count += 1
        # grpcio knows a client by the address of its socket, so each has one. The name outlives the file.
        path = self._folder / str(self._count)
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            sock.bind(str(path))
            path.unlink()
            sock.connect(str(target))
            self._clients[str(path)] = client
            end = _Relayed(self, client, str(path))
            await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=sock)
        except OSError as error:
            self._clients.pop(str(path), None)
            sock.close()
            log.warning("connection to %s: no connection within the process: %s; closing", client.peer, error)
            client.release_handshake()
            client.transport.abort()
            return
        if client.transport.is_closing():
            end.transport.abort()
            return
        client.other = end.transport
        client.relay(client.first_bytes)
        client.first_bytes = b""
        client.transport.resume_reading()

    def give_up(self, client: "_Accepted") -> None:
        """Close a connection that sent nothing."""
        self._events.add("connection to %s: nothing was received for %g s; closing", client.peer, self.first_byte_s)
        client.transport.abort()


class _End(asyncio.Protocol):
    """One end of a relayed connection.

    Attributes:
        other: transport of the other end.
        handshake: the TLS handshake until it is over.
    """

    def __init__(self, relay: FirstByteRelay) -> None:
        self._relay = relay
        self.other: asyncio.Transport | None = None
        self.handshake: RelayedHandshake | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def relay(self, data: bytes) -> None:
        """Send bytes of this end to the other one."""
        if self.handshake is not None:
            self.note(self.handshake, data)
            if self.handshake.is_over:
                self.handshake = None
        if self.other is not None and not self.other.is_closing():
            self.other.write(data)

    def note(self, handshake: RelayedHandshake, data: bytes) -> None:
        """Show bytes of this end to a handshake."""
        raise NotImplementedError

    def end_handshake(self, client: "_Accepted") -> None:
        """End a handshake with its connection: it failed, and is logged if it had begun."""
        if self.handshake is not None:
            if self.handshake.is_running:
                self._relay.handshake_failed(client)
            self.handshake.end(failed=True)

    def release_handshake(self) -> None:
        """Give the place of the handshake back, which is no failure of the client."""
        if self.handshake is not None:
            self.handshake.end(failed=False)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.resume_reading()

    def close_other(self) -> None:
        """Close the other end once it has what was sent to it."""
        other = self.other
        if other is not None and not other.is_closing():
            other.close()
            if other.get_write_buffer_size():  # a peer that reads nothing would keep it for ever
                asyncio.get_running_loop().call_later(_LINGER_S, other.abort)


class _Relayed(_End):
    """The end that leads to grpcio, from an address of its own."""

    def __init__(self, relay: FirstByteRelay, client: "_Accepted", path: str) -> None:
        super().__init__(relay)
        self.path = path
        self._client = client
        self.other, self.handshake = client.transport, client.handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relay.connected(self)

    def note(self, handshake: RelayedHandshake, data: bytes) -> None:
        handshake.server_sent(data)

    def data_received(self, data: bytes) -> None:
        self.relay(data)
        if self.handshake is None and self._client.transport.is_closing():
            self._client.close_other()  # it was kept for the answer to a handshake

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_handshake(self._client)
        self._relay.disconnected(self)
        self.close_other()


class _Accepted(_End):
    """The client's end; until its first byte there is no other.

    Attributes:
        peer: ``ip:port`` of the client.
        held_bytes: bytes of its requests that are incomplete or wait to be handled.
        first_bytes: received bytes until they are relayed.
    """

    held_bytes = 0
    first_bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self.peer = join_address(address[0], address[1]) if address else ""
        self._is_accepted = self._relay.accepted(self)
        if not self._is_accepted:
            self.transport.abort()
            return
        self._late = asyncio.get_running_loop().call_later(self._relay.first_byte_s, self._relay.give_up, self)

    def note(self, handshake: RelayedHandshake, data: bytes) -> None:
        handshake.client_sent(data)

    def data_received(self, data: bytes) -> None:
        if not self._is_accepted:
            return
        if self.other is not None:
            self.relay(data)
        elif not self.first_bytes:
            self._late.cancel()
            self.first_bytes = data
            self._relay.begin(self)
        else:
            self.first_bytes += data
            if len(self.first_bytes) > MOST_BEFORE_HANDSHAKE:
                self._relay.reject(self, f"it sent more than {MOST_BEFORE_HANDSHAKE:,} bytes before its handshake")
        self._relay.received(self, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_accepted:
            return
        self._late.cancel()
        self._relay.closed(self)
        other, handshake = self.other, self.handshake
        if handshake is not None and handshake.is_answer_due and other is not None and not other.is_closing():
            # Its last message may have completed the handshake. The answer decides, and grpcio ends after it.
            other.write_eof()
            return
        self.end_handshake(self)
        self.close_other()
