"""TLS for the HTTP ports of a server, whose protocol is aiohttp's: both kinds of connections on one port."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from rocketbroker.transport.tls_transport import FirstByte, ServerTls

_BUFFER: Final = 64 * 1024


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
    return lambda: FirstByte(_Securable(cast("HttpHandler", make())), tls)
