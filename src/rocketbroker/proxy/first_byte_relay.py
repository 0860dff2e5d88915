"""Relay of a port with TLS: the first byte decides to which local socket a connection goes, for TLS or plain text.

A TLS handshake begins with 0x16, HTTP/2 without TLS with a letter. grpcio can listen for either, but can neither look
first nor take over a connection that somebody else accepted.

The relay bounds what grpcio does not: connections, and the memory of incomplete requests. grpcio keeps the parts of a
request until it is complete, up to grpcMaxInboundMessageSize for each call, so that calls which are never completed
fill the memory by one connection. What grpcio may hold of a connection are the bytes that came in, less the requests
that were handled. This is an estimate: an allowance for headers and framing is taken off with each request, or a
connection that lives long would look guilty. A client that completes small requests meanwhile hides some bytes by that,
with each call 0.5 KiB and the metadata that HPACK leaves out.
"""

import asyncio
import logging
import socket
from pathlib import Path
from typing import cast

from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.event_log import EventLog, RefusalLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.endpoint import ConnectionCount
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.remoting_server import bind_sockets, close_sockets, listen, port_of

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

    async def start(self) -> None:
        """Bind the port and accept connections.

        Raises:
            ConfigError: The address cannot be bound; the text names the address and the cause.
        """
        loop = asyncio.get_running_loop()
        sockets = bind_sockets(self.host, self.port)
        self.port = port_of(sockets[0])
        try:
            for sock in sockets:
                listen(sock, _BACKLOG)
                self._servers.append(await loop.create_server(lambda: _Accepted(self), sock=sock, backlog=_BACKLOG))
        except BaseException:
            close_sockets(sockets)
            self.stop_accepting()
            raise

    def stop_accepting(self) -> None:
        """Release the port; connections stay open."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def stop(self) -> None:
        """Close connections, those that the other end has closed after their last bytes were sent."""
        self.stop_accepting()
        await self._tasks.stop()
        for end in list(self._ends):
            if end.other is None:
                end.transport.abort()
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

    def begin(self, client: "_Accepted", data: bytes) -> None:
        """Relay a connection from its first bytes on."""
        client.transport.pause_reading()
        self._tasks.start(self._connect(client, data), "connect")

    async def _connect(self, client: "_Accepted", data: bytes) -> None:
        target = self._tls if data[0] == _TLS_HANDSHAKE else self._plain
        if target is None:
            cause = "it has no TLS; connect by TLS, or set grpcPlainTextEnable=true"
            self._rejections.add(f"connection to {client.peer}: closing, as {cause}")
            client.transport.abort()
            return
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
            end = _Relayed(self, str(path))
            end.other = client.transport
            await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=sock)
        except OSError as error:
            self._clients.pop(str(path), None)
            sock.close()
            log.warning("connection to %s: no connection within the process: %s; closing", client.peer, error)
            client.transport.abort()
            return
        if client.transport.is_closing():
            end.transport.abort()
            return
        client.other = end.transport
        end.transport.write(data)
        client.transport.resume_reading()

    def give_up(self, client: "_Accepted") -> None:
        """Close a connection that sent nothing."""
        self._events.add("connection to %s: nothing was received for %g s; closing", client.peer, self.first_byte_s)
        client.transport.abort()


class _End(asyncio.Protocol):
    """One end of a relayed connection.

    Attributes:
        other: transport of the other end.
    """

    def __init__(self, relay: FirstByteRelay) -> None:
        self._relay = relay
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other = self.other
        if other is not None and not other.is_closing():
            other.close()
            if other.get_write_buffer_size():  # a peer that reads nothing would keep it for ever
                asyncio.get_running_loop().call_later(_LINGER_S, other.abort)


class _Relayed(_End):
    """The end that leads to grpcio, from an address of its own."""

    def __init__(self, relay: FirstByteRelay, path: str) -> None:
        super().__init__(relay)
        self.path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relay.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.disconnected(self)
        super().connection_lost(exc)


class _Accepted(_End):
    """The client's end; until its first byte there is no other.

    Attributes:
        peer: ``ip:port`` of the client.
        held_bytes: bytes of its requests that are incomplete or wait to be handled.
    """

    held_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self.peer = join_address(address[0], address[1]) if address else ""
        self._is_accepted = self._relay.accepted(self)
        if not self._is_accepted:
            self.transport.abort()
            return
        self._late = asyncio.get_running_loop().call_later(self._relay.first_byte_s, self._relay.give_up, self)

    def data_received(self, data: bytes) -> None:
        if not self._is_accepted:
            return
        if self.other is None:
            self._late.cancel()
            self._relay.begin(self, data)
        else:
            super().data_received(data)
        self._relay.received(self, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_accepted:
            self._late.cancel()
            self._relay.closed(self)
        super().connection_lost(exc)
