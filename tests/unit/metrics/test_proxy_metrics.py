"""Metrics and health of a proxy."""

import asyncio

import pytest

from rocketbroker.auth.access_copy import AccessCopy
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.exposition import write
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.proxy_metrics import ProxyReport
from tests.support.fakes import FakeClock
from tests.support.running import running
from tests.support.waiting import until


class Proxy:
    """A proxy with one call; its name servers know a number of masters, or fail."""

    def __init__(self, **settings: str | bool) -> None:
        times = Histogram((1,))
        times.add(0.5)
        self.calls: dict[tuple[str, str], Histogram] | None = {("SendMessage", "ok"): times}
        self.open_calls = 3
        self.failed_handshakes: int | None = None
        self.rejected_connections = {"failedConnections": 7}
        self.masters: int | RocketBrokerError = 2
        self.asked = asyncio.Event()
        self.report = ProxyReport(ProxyConfig(**settings), "host-1", self, LoopWatch(), self._find)  # type: ignore[arg-type]

    async def _find(self) -> int:
        self.asked.set()
        if isinstance(self.masters, RocketBrokerError):
            raise self.masters
        return self.masters

    async def page(self) -> str:
        return b"".join([each async for each in write(await self.report.report())]).decode()


class Access:
    """Access control that refused nothing."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.guard = RequestGuard(AccessCopy(), RequestRights("C"), FakeClock(), Checks())


async def test_a_proxy_is_up_and_times_its_calls():
    page = await Proxy(metrics_label="zone:a").page()

    common = 'zone="a",cluster="DefaultCluster",node_type="proxy",node_id="host-1"'
    up = 'rocketmq_proxy_up{zone="a",cluster="DefaultCluster",node_id="host-1",otel_scope_name="broker-meter"'
    assert f'{up},node_type="proxy",proxy_mode="cluster"}} 1.0' in page
    assert f"rocketbroker_grpc_open_calls{{{common}}} 3.0" in page
    assert f'rocketbroker_grpc_call_seconds_count{{{common},method="SendMessage",code="ok"}} 1.0' in page
    assert "handshake" not in page


async def test_handshakes_that_failed_are_counted_on_a_port_with_tls():
    proxy = Proxy()
    proxy.failed_handshakes = 2

    assert 'rocketbroker_grpc_tls_handshake_failures_total{cluster="DefaultCluster"' in (page := await proxy.page())
    assert 'node_id="host-1"} 2.0' in page
    assert 'node_id="host-1",cause="failedConnections"} 7.0' in page


async def test_settings_name_the_proxy():
    page = await Proxy(proxy_name="p-1", proxy_cluster_name="C", metrics_in_delta=True).page()

    assert 'cluster="C",node_type="proxy",node_id="p-1",aggregation="delta"' in page


@pytest.mark.parametrize(
    ("masters", "is_ready", "reason"),
    [
        (2, True, "2 masters are registered"),
        (0, False, "no master is registered at the name servers"),
        (RocketBrokerError("192.0.2.1:9876 does not answer"), False, "192.0.2.1:9876 does not answer"),
    ],
)
async def test_a_proxy_is_ready_while_it_knows_masters(masters: int | RocketBrokerError, is_ready: bool, reason: str):
    proxy = Proxy()
    proxy.masters = masters
    assert [each.ok for each in proxy.report.ready()] == [False]
    async with running(proxy.report):
        await until(lambda: proxy.report.ready()[0].reason == reason)

        assert proxy.report.ready()[0].ok == is_ready
        assert all(each.ok for each in proxy.report.alive())


def test_a_proxy_that_checks_calls_is_ready_once_it_knows_users():
    access = Access("broker a: User:inner: check signature failed")
    report = ProxyReport(ProxyConfig(), "host-1", Proxy(), LoopWatch(), Proxy()._find, access)
    assert (report.ready()[1].name, report.ready()[1].ok) == ("users", False)
    assert report.ready()[1].reason == access.problem
    access.problem = ""
    assert report.ready()[1].ok


async def test_refused_calls_are_counted():
    access = Access()
    access.guard.refusals.denied = 3
    report = ProxyReport(ProxyConfig(), "host-1", Proxy(), LoopWatch(), Proxy()._find, access)
    page = b"".join([each async for each in write(await report.report())]).decode()
    assert 'cause="authorization"} 3.0' in page
