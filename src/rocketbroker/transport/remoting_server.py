"""A listening endpoint (NettyRemotingServer)."""

import asyncio
from collections.abc import Callable

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.connection import Endpoint, RemotingConnection

_IDLE_SCAN_S = 10.0
_BACKLOG = 1024


class RemotingServer:
    """Accepts connections and serves the routes.

    Args:
        routes: handlers by request code.
        host: address to bind; empty for all addresses.
        port: port to bind; 0 takes a free one, then ``port`` tells which.
        frame_max_length: limit of a frame's length field in bytes; a longer frame is refused before memory is taken.
        max_idle_s: a connection that sends nothing for so long is closed (serverChannelMaxIdleTimeSeconds).
        on_batch_end: called after the last frame of each read event, before its answers are written.
        on_close: called when a connection is gone.
    """

    def __init__(
        self,
        routes: dict[int, Route],
        *,
        host: str = "",
        port: int = 0,
        frame_max_length: int = FRAME_MAX_LENGTH,
        max_idle_s: float = 120.0,
        on_batch_end: Callable[[], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._max_idle_s = max_idle_s
        self._endpoint = Endpoint("server", routes, frame_max_length, on_batch_end, on_close)
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> set[RemotingConnection]:
        """The open connections."""
        return self._endpoint.connections

    async def start(self) -> None:
        """Bind and accept.

        Raises:
            ConfigError: the address cannot be bound; the text names address and cause.
        """
        self.port = await self._listen(self.host, self.port)
        self._endpoint.tasks.every(_IDLE_SCAN_S, self._close_idle, "idle-scan")

    async def also_listen(self, port: int) -> None:
        """Accept on a second port too (the VIP channel of the broker, listenPort - 2).

        Raises:
            ConfigError: the port cannot be bound.
        """
        await self._listen(self.host, port)

    async def _listen(self, host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: RemotingConnection(self._endpoint),
                host or "0.0.0.0",  # noqa: S104
                port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            where = f"{host or '0.0.0.0'}:{port}"  # noqa: S104
            cause = error.strerror or error
            raise ConfigError(f"cannot listen on {where}: {cause}; change listenPort or stop what uses it") from error
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._endpoint.connections):
            if now - connection.last_read > self._max_idle_s:
                connection.close(f"nothing was received for {self._max_idle_s:g} s")

    async def stop(self) -> None:
        """Stop accepting, end the tasks of open requests, close all connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._endpoint.stop("the server stops")
