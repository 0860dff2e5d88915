"""Static address server: clients without a fixed list fetch the name servers' addresses over HTTP.

Serves the requests of org.apache.rocketmq.common.namesrv.DefaultTopAddressing: ``GET /rocketmq/nsaddr``, or
``/rocketmq/nsaddr-<unit>?nofix=1`` of clients with a unit name. The body is ``host:port;host:port`` and nothing else.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketbroker.common.address_server_client import require_http
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.http_tls import with_tls
from rocketbroker.transport.tls_transport import ServerTls

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/rocketmq/nsaddr"
_UNIT_PATH = PATH + r"-{unit:[%|a-zA-Z0-9_-]{1,255}}"
_SHUTDOWN_S = 1.0


class AddressServer:
    """HTTP server of the name servers' addresses.

    Args:
        host: address to listen on.
        port: port to listen on; 0 picks a free one, which ``port`` then holds.
        addresses: returns ``host:port;host:port``, called for each request.
        tls: TLS of the port; without it, the port has plain text alone.
    """

    def __init__(self, host: str, port: int, addresses: Callable[[], str], tls: ServerTls | None = None) -> None:
        self._host = host
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._addresses = addresses
        self._runner: web.AppRunner | None = None
        self.port = port

    async def start(self) -> None:
        """Start to listen.

        Raises:
            ConfigError: The address cannot be bound, or the extra for HTTP is not installed.
        """
        require_http("addressServerEnable=true")
        from aiohttp import web

        async def answer(request: web.Request) -> web.Response:
            return web.Response(text=self._addresses())

        application = web.Application()
        application.router.add_get(PATH, answer)
        application.router.add_get(_UNIT_PATH, answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        assert self._runner.server is not None, "it is set up"
        accept = with_tls(self._runner.server, self._tls)
        try:
            self._listener = await asyncio.get_running_loop().create_server(accept, self._host or None, self.port)
        except OSError as error:
            await self.stop()
            where = f"{self._host}:{self.port}: {error.strerror or error}"
            text = f"the address server cannot listen on {where}; change addressServerPort or stop what uses it"
            raise ConfigError(text) from error
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
