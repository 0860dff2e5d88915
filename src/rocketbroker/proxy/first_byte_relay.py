"""Port that takes TLS and plain text: the first byte decides to which local socket a connection is relayed.

A TLS handshake begins with 0x16, HTTP/2 without TLS with a letter. grpcio can listen for either, but can neither look
first nor take over a connection that somebody else accepted.
"""

import asyncio
import logging
import socket
from pathlib import Path
from typing import cast

from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_server import bind_sockets, close_sockets, listen, port_of

log = logging.getLogger(__name__)

_BACKLOG = 1024
_TLS_HANDSHAKE = 0x16
_LINGER_S = 5.0


class FirstByteRelay:
    """Accept connections and relay them to a socket for TLS or one for plain text.

    Both ends of a relayed connection close together. What one end sends is read no faster than the other takes it.

    Args:
        host: address to bind; empty for all addresses.
        port: port to bind; 0 picks a free one, which ``port`` then holds.
        folder: private folder for the addresses of relayed connections.
        plain: path of the socket for plain text.
        tls: path of the socket for TLS.
        first_byte_s: seconds after which a connection without a byte is closed.
    """

    def __init__(self, host: str, port: int, folder: Path, plain: Path, tls: Path, first_byte_s: float) -> None:
        self.host, self.port = host, port
        self._folder, self._plain, self._tls = folder, plain, tls
        self.first_byte_s = first_byte_s
        self._tasks = TaskOwner("FirstByteRelay")
        self._servers: list[asyncio.Server] = []
        self._ends: set[_End] = set()
        self._peers: dict[str, str] = {}
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
        return self._peers.get(path, path)

    def entered(self, end: "_End") -> None:
        """Keep a connection until it is lost."""
        self._ends.add(end)

    def left(self, end: "_End") -> None:
        """Forget a connection, and the client that it was relayed for."""
        self._ends.discard(end)
        self._peers.pop(end.path, None)
        if not self._ends:
            self._empty.set()

    def begin(self, client: "_Accepted", data: bytes) -> None:
        """Relay a connection from its first bytes on."""
        client.transport.pause_reading()
        self._tasks.start(self._connect(client, data), "connect")

    async def _connect(self, client: "_Accepted", data: bytes) -> None:
        target = self._tls if data[0] == _TLS_HANDSHAKE else self._plain
        self._count += 1
        # grpcio knows a client by the address of its socket, so each has one. The name outlives the file.
        path = self._folder / str(self._count)
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            sock.bind(str(path))
            path.unlink()
            sock.connect(str(target))
            self._peers[str(path)] = client.peer
            end = _End(self, str(path))
            end.other = client.transport
            await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=sock)
        except OSError as error:
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
        log.info("connection to %s: nothing was received for %g s; closing", client.peer, self.first_byte_s)
        client.transport.abort()


class _End(asyncio.Protocol):
    """One end of a relayed connection.

    Attributes:
        path: address of the end that leads to grpcio, empty at the client's.
        other: transport of the other end.
    """

    def __init__(self, relay: FirstByteRelay, path: str = "") -> None:
        self._relay = relay
        self.path = path
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._relay.entered(self)

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
        self._relay.left(self)
        other = self.other
        if other is not None and not other.is_closing():
            other.close()
            if other.get_write_buffer_size():  # a peer that reads nothing would keep it for ever
                asyncio.get_running_loop().call_later(_LINGER_S, other.abort)


class _Accepted(_End):
    """The client's end; until its first byte there is no other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self.peer = join_address(address[0], address[1]) if address else ""
        self._late = asyncio.get_running_loop().call_later(self._relay.first_byte_s, self._relay.give_up, self)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._late.cancel()
            self._relay.begin(self, data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)
