"""The HTTP port of metrics and health: /metrics, /healthz and /readyz.

It needs the extra ``metrics`` and is imported when metricsExporterType=PROM. A stranger in protected mode reads no
metrics, and of the health no reasons: it needs no more to know than a load balancer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config.hosts import contains, parse_address, parse_networks
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.lifecycle import Part, PartList
from rocketbroker.metrics.exposition import CONTENT_TYPE
from rocketbroker.metrics.health import Condition, Health
from rocketbroker.transport.access import Admit

log = logging.getLogger(__name__)

_SHUTDOWN_S: Final = 1.0
_STARTING: Final = "the server is starting or stopping; /readyz says what is missing\n"


class MetricsPort:
    """HTTP server of metrics and health.

    Args:
        host: address to listen on.
        port: port to listen on; 0 picks a free one, which ``port`` then holds.
        page: yields the page of metrics in slices; ``None`` while there is none.
        health: the conditions of /healthz and /readyz.
        admit: returns the audience of a peer.
        white_list: returns the networks that may read metrics as well.
    """

    def __init__(
        self,
        host: str,
        port: int,
        page: Callable[[], AsyncIterator[bytes] | None],
        health: Health,
        admit: Admit,
        white_list: Callable[[], str],
    ) -> None:
        self._host = host
        self.port = port
        self._page = page
        self._conditions = health
        self._admit = admit
        self._white_list = white_list
        # One page at a time: collecting several together would delay each.
        self._collecting = asyncio.Lock()
        self._refusals = RefusalLog(log)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Start to listen.

        Raises:
            ConfigError: The address cannot be bound.
        """
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._health(self._conditions.alive))
        application.router.add_get("/readyz", self._health(self._conditions.ready))
        runner = self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self.port).start()
        except OSError as error:
            await self.stop()
            where = f"{self._host}:{self.port}: {error.strerror or error}"
            text = f"metrics cannot listen on {where}; change metricsPromExporterPort or stop what uses it"
            raise ConfigError(text) from error
        self.port = runner.addresses[0][1]
        log.info("metrics: http://%s:%s/metrics, /healthz and /readyz", self._host, self.port)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _may_read(self, request: web.Request) -> bool:
        transport = request.transport
        peer, own = (transport.get_extra_info(end) if transport else None for end in ("peername", "sockname"))
        if not peer or not own:
            return False
        if self._admit(peer[0], own[0]) is not Audience.CLIENT:
            return True
        address = parse_address(peer[0])
        return address is not None and contains(parse_networks(self._white_list()), address)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if not self._may_read(request):
            text = (
                f"protectedMode: {request.remote} is admitted as a client, and metrics are for administration; add its "
                "address to metricsWhiteList, or set protectedMode=false"
            )
            self._refusals.add(f"metrics: {text}")
            return web.Response(status=403, text=text + "\n")
        async with self._collecting:
            slices = self._page()
            if slices is None:
                return web.Response(status=503, text=_STARTING)
            # Complete before the first byte is sent: an error is a status, and a slow reader delays no other.
            page = [each async for each in slices]
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        for each in page:
            await response.write(each)
            # A reader on this machine may take all of it without a wait.
            await asyncio.sleep(0)
        return response

    def _health(
        self, conditions: Callable[[], Sequence[Condition]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            found = conditions()
            is_ok = all(each.ok for each in found)
            body: dict[str, object] = {"status": "ok" if is_ok else "unavailable"}
            if self._may_read(request):
                body["conditions"] = {each.name: {"ok": each.ok, "reason": each.reason} for each in found}
            return web.json_response(body, status=200 if is_ok else 503)

        return answer


class MetricsService:
    """A port of metrics and health, and the watches whose figures it shows."""

    def __init__(self, port: MetricsPort, *watches: Part) -> None:
        self._port = port
        self._parts = PartList(*watches, port)

    @property
    def port(self) -> int:
        """Port of metrics and health."""
        return self._port.port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is in use.
        """
        await self._parts.start()

    async def stop(self) -> None:
        """Close the port."""
        await self._parts.stop()
