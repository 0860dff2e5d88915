"""The HTTP port of metrics and health: /metrics, /healthz and /readyz.

It needs the extra ``metrics`` and is imported when metricsExporterType=PROM. A stranger in protected mode reads no
metrics, and of the health no reasons: it needs no more to know than a load balancer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config.hosts import contains, parse_address, parse_networks
from rocketbroker.common.config.metrics_settings import MetricsPortSettings
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.metrics.exposition import CONTENT_TYPE, write
from rocketbroker.metrics.family import Report
from rocketbroker.metrics.health import Condition, Health
from rocketbroker.transport.access import Admit
from rocketbroker.transport.http_port import HttpPort
from rocketbroker.transport.tls_transport import ServerTls

log = logging.getLogger(__name__)

# Longest time in which a reader takes a page, in seconds.
_READ_S: Final = 30.0
_STARTING: Final = "the server is starting or stopping; /readyz says what is missing\n"


class MetricsPort(HttpPort):
    """HTTP server of metrics and health.

    Args:
        config: where to listen, and the networks that may read metrics as well.
        bind_address: where to listen without metricsPromExporterHost.
        report: returns the metrics; ``None`` while there are none.
        health: the conditions of /healthz and /readyz.
        admit: returns the audience of a peer.
        remedy: what admits a peer that is rejected, beside metricsWhiteList.
        tls: TLS of the port; without it, the port has plain text alone.
    """

    # Prometheus keeps one, a probe opens one for each request.
    most_connections = 64

    def __init__(
        self,
        config: MetricsPortSettings,
        bind_address: str,
        report: Callable[[], Awaitable[Report] | None],
        health: Health,
        admit: Admit,
        remedy: str = ", or set protectedMode=false",
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__(config.metrics_prom_exporter_host or bind_address, config.metrics_prom_exporter_port, tls)
        self._config = config
        self._report = report
        self._conditions = health
        self._admit = admit
        self._remedy = remedy
        # One page at a time: collecting several together would delay each.
        self._collecting = asyncio.Lock()
        self._refusals, self._slow = RefusalLog(log), RefusalLog(log)

    async def start(self) -> None:
        """Start to listen.

        Raises:
            ConfigError: The address cannot be bound.
        """
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._health(self._conditions.alive))
        application.router.add_get("/readyz", self._health(self._conditions.ready))
        await self._listen(application, "metrics", "metricsPromExporterPort")
        scheme = "http" if self._tls is None else "http and https" if self._tls.plain else "https"
        log.info("metrics: %s://%s:%s/metrics, /healthz and /readyz", scheme, self._host, self.port)

    def _comes_first(self, transport: asyncio.BaseTransport) -> bool:
        return self._may_read(transport)

    def _may_read(self, transport: asyncio.BaseTransport | None) -> bool:
        peer, own = (transport.get_extra_info(end) if transport else None for end in ("peername", "sockname"))
        if not peer or not own:
            return False
        if self._admit(peer[0], own[0]) is not Audience.CLIENT:
            return True
        address = parse_address(peer[0])
        return address is not None and contains(parse_networks(self._config.metrics_white_list), address)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if not self._may_read(request.transport):
            text = (
                f"protectedMode: {request.remote} is admitted as a client, and metrics are for administration; add its "
                f"address to metricsWhiteList{self._remedy}"
            )
            self._refusals.add(f"metrics: {text}")
            return web.Response(status=403, text=text + "\n")
        async with self._collecting:
            report = self._report()
            if report is None:
                return web.Response(status=503, text=_STARTING)
            # Complete before the first byte is sent: an error is a status, and a slow reader delays no other.
            page = [each async for each in write(await report)]
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        try:
            async with asyncio.timeout(_READ_S):
                for each in page:
                    await response.write(each)
                    # A reader on this machine may take all of it without a wait.
                    await asyncio.sleep(0)
        except TimeoutError:
            self._slow.add(f"metrics: {request.remote} did not take the page within {_READ_S:g} s; it was closed")
            if request.transport is not None:
                request.transport.abort()
        return response

    def _health(
        self, conditions: Callable[[], Sequence[Condition]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            found = conditions()
            is_ok = all(each.ok for each in found)
            body: dict[str, object] = {"status": "ok" if is_ok else "unavailable"}
            if self._may_read(request.transport):
                body["conditions"] = {each.name: {"ok": each.ok, "reason": each.reason} for each in found}
            return web.json_response(body, status=200 if is_ok else 503)

        return answer
