"""HTTP ports of a server, whose protocol is aiohttp's: plain text and TLS on one port."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from rocketbroker.common.errors import ConfigError
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.transport.failed_connections import admitting
from rocketbroker.transport.remoting_server import close_servers
from rocketbroker.transport.tls_transport import FirstByte, ServerTls

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

_BUFFER: Final = 64 * 1024
_SHUTDOWN_S: Final = 1.0
# Longest pause between two requests of a connection, in seconds.
_KEEP_ALIVE_S: Final = 75.0
# The server knows an accepted connection before this time, in seconds.
_PENDING_S: Final = 1.0


class HttpHandler(asyncio.Protocol):
    """Protocol of a connection that takes its transport from an attribute, as that of aiohttp does.

    Attributes:
        transport: where answers are written.
    """

    transport: asyncio.Transport | None


class _Securable(asyncio.BufferedProtocol):
    """Lets a handler change to an encrypted transport before it has read anything."""

    def __init__(self, handler: HttpHandler) -> None:
        self._handler = handler
        self._buffer = memoryview(bytearray(_BUFFER))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Before the handshake, so that the handler's limits hold for connections that never send a byte.
        self._handler.connection_made(transport)

    def secured(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._handler.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._handler.data_received(bytes(self._buffer[:nbytes]))


def with_tls(make: Callable[[], asyncio.Protocol], tls: ServerTls | None) -> Callable[[], asyncio.BaseProtocol]:
    """Return what makes the protocol of a new connection.

    Args:
        make: makes a handler, or a protocol that closes the connection at once.
        tls: TLS of the port; ``None`` for plain text alone.
    """
    if tls is None:
        return make

    def first_byte() -> FirstByte:
        return FirstByte(_Securable(cast("HttpHandler", make())), tls)

    return admitting(tls.failed_connections, first_byte)


class HttpPort:
    """Server of one application of aiohttp, which is imported when it starts.

    Args:
        host: address to listen on; empty for all.
        port: port to listen on; 0 picks a free one, which ``port`` then holds.
        tls: TLS of the port; without it, the port has plain text alone.

    Attributes:
        most_connections: number of connections above which one is closed for each new one.
    """

    most_connections: ClassVar[int]

    def __init__(self, host: str, port: int, tls: ServerTls | None) -> None:
        self._host = host
        self.port = port
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._name = ""
        self._too_many = RefusalLog(log, "closed")
        # Connections that were accepted within the last second and that the server does not know yet.
        self._pending: set[web.RequestHandler] = set()

    async def _listen(self, application: "web.Application", name: str, setting: str) -> None:
        """Start to listen.

        Args:
            application: answers requests.
            name: the server in an error and in the log.
            setting: name of the setting of its port.

        Raises:
            ConfigError: The address cannot be bound.
        """
        from aiohttp import web

        self._name = name
        runner = self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=_SHUTDOWN_S, keepalive_timeout=_KEEP_ALIVE_S
        )
        await runner.setup()
        assert runner.server is not None, "it is set up"
        accept = with_tls(partial(self._accept, runner.server), self._tls)
        try:
            self._listener = await asyncio.get_running_loop().create_server(accept, self._host or None, self.port)
        except OSError as error:
            await self.stop()
            where = f"{self._host}:{self.port}: {error.strerror or error}"
            raise ConfigError(f"{name} cannot listen on {where}; change {setting} or stop what uses it") from error
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            await close_servers([listener])
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _accept(self, server: "web.Server") -> asyncio.Protocol:
        """Return the protocol of a new connection.

        Above the limit the oldest connection of a stranger is closed for it, so that none of those who come first is
        kept out by others; if there is none, the new one is closed.
        """
        # asyncio accepts many connections before it reports the first to the server.
        connections = server.connections
        self._pending.difference_update(connections)
        if len(self._pending) + len(connections) < self.most_connections:
            return self._handler(server)
        self._too_many.add(f"{self._name}: {self.most_connections} connections are open, which is the limit")
        for each in connections:
            transport = each.transport
            if transport is not None and not transport.is_closing() and not self._comes_first(transport):
                transport.abort()
                return self._handler(server)
        return _Closed()

    def _handler(self, server: "web.Server") -> "web.RequestHandler":
        handler = server()
        self._pending.add(handler)
        asyncio.get_running_loop().call_later(_PENDING_S, self._pending.discard, handler)
        return handler

    def _comes_first(self, _transport: asyncio.BaseTransport) -> bool:
        """Return true if a connection is never closed for another; all are strangers here."""
        return False


class _Closed(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()
