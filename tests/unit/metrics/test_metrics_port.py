"""The HTTP port: who may read what, and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence

import aiohttp
import pytest
from aiohttp import web

from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import ConfigError
from rocketbroker.metrics import metrics_port
from rocketbroker.metrics.family import Block, Report, gauge
from rocketbroker.metrics.health import Condition
from rocketbroker.metrics.metrics_port import MetricsPort
from tests.support.running import running


class Broker:
    """A broker with a page of one metric."""

    def __init__(self, port: int = 0) -> None:
        self.audience = Audience.ADMINISTRATION
        self.config = BrokerConfig(metrics_prom_exporter_port=port)
        self.is_serving = True
        self.conditions = [Condition("store", True, "open")]
        self.port = MetricsPort(self.config, "127.0.0.1", self._report, self, self._admit)

    def alive(self) -> Sequence[Condition]:
        return [Condition("eventLoop", True, "it answers")]

    def ready(self) -> Sequence[Condition]:
        return self.conditions

    def _admit(self, _peer: str, _own: str) -> Audience:
        return self.audience

    def _report(self) -> Awaitable[Report] | None:
        return self._metrics() if self.is_serving else None

    async def _metrics(self) -> Report:
        return Report({}, 10, [Block("", [gauge("a", [({}, 1)]), gauge("b", [({}, 2)])])])


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    found = Broker()
    async with running(found.port):
        yield found


async def get(broker: Broker, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{broker.port.port}{path}") as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_a_page_is_sent_whole(broker: Broker):
    status, kind, text = await get(broker, "/metrics")

    assert status == 200
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["a 1.0", "b 2.0"]
    assert kind.startswith("text/plain; version=")


async def test_there_is_no_page_before_the_broker_serves(broker: Broker):
    broker.is_serving = False
    status, _, text = await get(broker, "/metrics")

    assert status == 503
    assert "/readyz" in text


async def test_a_stranger_reads_no_metrics(broker: Broker):
    broker.audience = Audience.CLIENT
    status, _, text = await get(broker, "/metrics")

    assert status == 403
    assert text == (
        "protectedMode: 127.0.0.1 is admitted as a client, and metrics are for administration; add its address to "
        "metricsWhiteList, or set protectedMode=false\n"
    )


async def test_the_white_list_admits_readers_of_metrics(broker: Broker):
    broker.audience = Audience.CLIENT
    apply_updates([broker.config], {"metricsWhiteList": "192.0.2.0/24;127.0.0.0/8"})

    assert (await get(broker, "/metrics"))[0] == 200


async def test_brokers_may_read_metrics(broker: Broker):
    broker.audience = Audience.BROKER

    assert (await get(broker, "/metrics"))[0] == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_is_json_with_reasons(broker: Broker, path: str):
    status, kind, text = await get(broker, path)

    assert (status, kind) == (200, "application/json; charset=utf-8")
    (condition,) = json.loads(text)["conditions"].values()
    assert condition["ok"]
    assert condition["reason"]


async def test_a_missing_condition_is_a_status_and_a_reason(broker: Broker):
    broker.conditions.append(Condition("disk", False, "it is full"))
    status, _, text = await get(broker, "/readyz")

    assert status == 503
    assert json.loads(text) == {
        "status": "unavailable",
        "conditions": {
            "store": {"ok": True, "reason": "open"},
            "disk": {"ok": False, "reason": "it is full"},
        },
    }
    assert (await get(broker, "/healthz"))[0] == 200


async def test_a_stranger_reads_no_reasons(broker: Broker):
    broker.audience = Audience.CLIENT
    broker.conditions = [Condition("disk", False, "/var/store is full")]
    status, _, text = await get(broker, "/readyz")

    assert (status, json.loads(text)) == (503, {"status": "unavailable"})


async def test_other_paths_are_not_found(broker: Broker):
    assert (await get(broker, "/"))[0] == 404


async def test_a_port_in_use_is_named(broker: Broker):
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{broker.port.port}: .*; change metricsPromExporterPort"):
        await Broker(broker.port.port).port.start()


async def hold(broker: Broker, number: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open connections that send nothing, each after the one before has been accepted."""
    return [await asyncio.open_connection("127.0.0.1", broker.port.port) for _ in range(number)]


async def test_strangers_with_many_connections_keep_no_reader_out(broker: Broker):
    broker.audience = Audience.CLIENT
    held = await hold(broker, MetricsPort.most_connections)
    status, _, _ = await get(broker, "/healthz")

    assert status == 200
    first, _ = held[0]
    assert await first.read() == b""
    for _, writer in held:
        writer.close()


async def test_a_burst_that_the_server_does_not_know_yet_is_limited(broker: Broker):
    assert broker.port._runner is not None
    server = broker.port._runner.server
    assert server is not None
    handlers = [broker.port._accept(server) for _ in range(MetricsPort.most_connections + 6)]

    assert [isinstance(each, web.RequestHandler) for each in handlers] == [True] * MetricsPort.most_connections + [
        False
    ] * 6


async def test_a_reader_that_takes_nothing_is_closed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def stuck(*_arguments: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(metrics_port, "_READ_S", 0.01)
    monkeypatch.setattr(web.StreamResponse, "write", stuck)

    with pytest.raises(aiohttp.ClientError):
        await get(broker, "/metrics")
    assert "127.0.0.1 did not take the page within 0.01 s; it was closed" in caplog.text


async def test_connections_beyond_the_limit_are_closed(broker: Broker):
    held = await hold(broker, MetricsPort.most_connections + 1)
    last, _ = held[-1]

    assert await last.read() == b""
    for _, writer in held:
        writer.close()
