"""Listening endpoint (NettyRemotingServer)."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import cast

from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.transport.access import Admit, admit_all, is_this_machine
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.listening_sockets import bind_sockets, listen, port_of

_BACKLOG = 1024


class RemotingServer:
    """Accept connections and serve the routes.

    Args:
        routes: handlers by request code.
        host: address to bind; empty for all addresses.
        port: port to bind; 0 picks a free one, which ``port`` then holds.
        limits: limits on peers.
        on_batch_end: called after the last frame of each read event, always before answers are written.
        on_close: called when a connection is closed or lost.
        admit: chooses the audience of a peer by the peer's host and the host it connected to.
        is_trusted: returns true for a peer that may use the connections kept for administrators, by the same hosts.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a server sets
        self,
        routes: dict[int, Route],
        *,
        host: str = "",
        port: int = 0,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        on_batch_end: Callable[[], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        admit: Admit = admit_all,
        is_trusted: Callable[[str, str], bool] = is_this_machine,
    ) -> None:
        self.host = host
        self.port = port
        self._sockets: Sequence[socket.socket] = ()
        self._endpoint = Endpoint(
            "server",
            routes,
            limits,
            on_batch_end=on_batch_end,
            on_close=on_close,
            admit=admit,
            is_trusted=is_trusted,
        )
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> set[RemotingConnection]:
        """Open connections."""
        return cast("set[RemotingConnection]", self._endpoint.connections)

    def readmit(self) -> None:
        """Choose the audience of every open connection again, after a change of settings."""
        self._endpoint.readmit()

    def listen_on(self, sockets: Sequence[socket.socket]) -> None:
        """Let ``start`` listen on sockets of ``bind_sockets`` instead of binding host and port."""
        self._sockets = sockets
        self.port = port_of(sockets[0])

    async def start(self) -> None:
        """Bind the port and accept connections.

        Raises:
            ConfigError: The address cannot be bound; the text names the address and the cause.
        """
        sockets = self._sockets or bind_sockets(self.host, self.port)
        self.port = port_of(sockets[0])
        try:
            for sock in sockets:
                await self._listen(sock)
        except BaseException:
            await self.stop()
            raise
        self._endpoint.watch()

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listen(sock, _BACKLOG)  # uvloop would leak a socket that cannot listen
        server = await loop.create_server(lambda: RemotingConnection(self._endpoint), sock=sock, backlog=_BACKLOG)
        self._servers.append(server)

    async def stop(self) -> None:
        """Stop accepting, end the tasks of open requests, close all connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._endpoint.stop("the server stops")
