"""Static address server: clients without a fixed list fetch the name servers' addresses over HTTP.

Serves the requests of org.apache.rocketmq.common.namesrv.DefaultTopAddressing: ``GET /rocketmq/nsaddr``, or
``/rocketmq/nsaddr-<unit>?nofix=1`` of clients with a unit name. The body is ``host:port;host:port`` and nothing else.
"""

from collections.abc import Callable

from rocketbroker.common.address_server_client import require_http
from rocketbroker.transport.http_port import HttpPort
from rocketbroker.transport.tls_transport import ServerTls

PATH = "/rocketmq/nsaddr"
_UNIT_PATH = PATH + r"-{unit:[%|a-zA-Z0-9_-]{1,255}}"


class AddressServer(HttpPort):
    """HTTP server of the name servers' addresses.

    Args:
        host: address to listen on.
        port: port to listen on; 0 picks a free one, which ``port`` then holds.
        addresses: returns ``host:port;host:port``, called for each request.
        tls: TLS of the port; without it, the port has plain text alone.
    """

    # A client opens one for each request, every two minutes, and keeps it open for some seconds. Those that a burst
    # leaves out ask again. Descriptors are left for the clients and brokers of the name server.
    most_connections = 256

    def __init__(self, host: str, port: int, addresses: Callable[[], str], tls: ServerTls | None = None) -> None:
        super().__init__(host, port, tls)
        self._addresses = addresses

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
        await self._listen(application, "the address server", "addressServerPort")
