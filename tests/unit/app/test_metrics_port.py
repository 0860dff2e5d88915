"""The port of metrics of a broker in this process."""

import asyncio
import sys
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import ConfigError
from rocketbroker.metrics.exposition import SLICE
from tests.support.metrics_script import read_page
from tests.support.running import running

ON = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


def broker(folder: Path, **settings: str) -> BrokerController:
    return BrokerController.bind(broker_settings(0, folder, "", properties=settings))


async def page(controller: BrokerController) -> str:
    return await asyncio.to_thread(read_page, f"http://127.0.0.1:{controller.metrics_port}/metrics")


async def test_nothing_is_counted_without_an_exporter(tmp_path: Path):
    async with running(broker(tmp_path)) as controller:
        assert controller.stats.meters is None
        assert controller.metrics_port == 0
        assert controller._fast_failure.times is None


async def test_labels_are_those_of_the_settings(tmp_path: Path):
    async with running(broker(tmp_path, **ON, metricsLabel="env:prod, zone:a", metricsInDelta="true")) as controller:
        lines = [line for line in (await page(controller)).splitlines() if line.startswith("rocketmq_topic_number{")]

    (line,) = lines
    for label in ('env="prod"', 'zone="a"', 'aggregation="delta"', 'node_type="broker"', 'cluster="DefaultCluster"'):
        assert label in line


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("enableStatsMetrics", "rocketmq_topic_number"),
        ("enableConnectionMetrics", "rocketmq_producer_connections"),
        ("enableMessageStoreMetrics", "rocketmq_storage_size_bytes"),
        ("enablePopMetrics", "rocketmq_pop_checkpoint_buffer_size"),
        ("enableRemotingMetrics", "rocketmq_rpc_latency_milliseconds"),
        ("enableRequestMetrics", "rocketmq_messages_in_total"),
        ("enableLagAndDlqMetrics", "rocketmq_consumer_lag_messages"),
        ("enableTransactionMetrics", "rocketmq_half_messages"),
    ],
)
async def test_a_switch_takes_its_metrics_off_the_page(tmp_path: Path, switch: str, gone: str):
    async with running(broker(tmp_path, **ON)) as controller:
        tables, families = controller._metrics._metrics._tables, controller._metrics._metrics._families  # type: ignore[union-attr]
        assert tables.meters is controller.stats.meters
        assert gone in {each.name for each in await families([])} | {"rocketmq_producer_connections"}
        apply_updates([controller._settings.broker], {switch: "false"})
        assert gone not in {each.name for each in await families([])}


async def test_a_page_of_many_topics_comes_in_slices(tmp_path: Path):
    async with running(broker(tmp_path, **ON)) as controller:
        meters = controller.stats.meters
        assert meters is not None
        for number in range(2_000):
            controller.topic_configs.topics[f"T{number}"] = TopicConfig(f"T{number}")
            meters.traffic(f"T{number}", "normal").add(1, 100)
        slices = [each async for each in controller._metrics._metrics.page()]  # type: ignore[union-attr]

    lines = [each.count(b"\n") for each in slices]
    assert sum(lines) > 2_000 * 11
    assert max(lines) <= SLICE + 12


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [
        name for name in sys.modules if name.startswith("rocketbroker.metrics") or name.endswith("metrics_port")
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"metricsExporterType=PROM needs the package .*rocketbroker\[metrics\]"):
        broker(tmp_path, **ON)


async def test_a_port_in_use_stops_the_start(tmp_path: Path):
    async with running(broker(tmp_path / "one", **ON)) as first:
        second = broker(tmp_path / "two", **(ON | {"metricsPromExporterPort": str(first.metrics_port)}))
        with pytest.raises(ConfigError, match="change metricsPromExporterPort"):
            await second.start()
