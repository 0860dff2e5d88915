"""The port of metrics of a broker in this process."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo, subscription_of
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import ConfigError
from rocketbroker.metrics.data_points import DataPoints
from rocketbroker.metrics.exposition import write
from rocketbroker.metrics.family import SLICE, Report
from rocketbroker.metrics.otlp_exporter import resource_metrics
from tests.support.loop_turns import longest_turn
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


@contextlib.asynccontextmanager
async def with_topics(folder: Path, count: int) -> AsyncIterator[BrokerController]:
    """A broker of some topics, to which a group subscribes; all have messages in and out."""
    async with running(broker(folder, **ON)) as controller:
        meters = controller.stats.meters
        assert meters is not None
        group = controller.consumers.groups["G"] = ConsumerGroupInfo("G")
        for topic in map("T{}".format, range(count)):
            controller.topic_configs.topics[topic] = TopicConfig(topic, 4, 4)
            meters.traffic(topic, "normal").add(1, 100)
            controller.stats.topic_put(topic).add(1, 100)
            controller.stats.group_get(topic, "G").add(1, 100)
            controller.stats.group_ack(topic, "G").add(1, 100)
            group.subscription_table[topic] = subscription_of(topic, "TAG", "*")
        yield controller


async def report(controller: BrokerController) -> Report:
    return await controller._metrics._metrics.report()  # type: ignore[union-attr]


async def scrape(controller: BrokerController) -> None:
    lines = [each.count(b"\n") async for each in write(await report(controller))]
    assert sum(lines) > len(controller.topic_configs.topics) * 17
    assert max(lines) <= SLICE + 12


async def export(controller: BrokerController) -> None:
    points, sizes = DataPoints(SystemClock(), in_delta=True), []
    async for batch in points.batches(await report(controller), 1_000):
        sizes.append((await resource_metrics(batch, in_delta=True)).ByteSize())
        points.exported(batch)
    assert len(sizes) > len(controller.topic_configs.topics) * 9 // 1_000


async def sample(controller: BrokerController) -> None:
    for _ in range(6):
        await controller.stats.sample()
    found = controller.stats.view("GROUP_GET_NUMS", "T999@G")
    assert found is not None
    assert found.stats_minute.sum == 1


FEW, MANY = SLICE, SLICE + 500


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "growth"),
    [
        (scrape, 0),
        (export, 0),
        pytest.param(sample, 12, id="sample, which sums up all counters at one time"),
    ],
)
async def test_the_loop_is_held_no_longer_for_more_topics(
    tmp_path: Path, work: Callable[[BrokerController], Coroutine[Any, Any, None]], growth: int
):
    """A turn of fifty thousand lines takes some milliseconds; ``growth`` is in lines for a topic."""
    turns = []
    for count in (FEW, MANY):
        async with with_topics(tmp_path / str(count), count) as controller:
            turns.append(await longest_turn(work(controller)))

    few, many = turns
    assert many < 50 * SLICE
    assert many - few <= growth * (MANY - FEW) + 100


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
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
