"""OTLP over gRPC to a collector that speaks it, and the same in JSON."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, ResourceMetrics

from rocketbroker.common.config.metrics_settings import OtlpTarget
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics import log_exporter
from rocketbroker.metrics.data_points import Batch, DataPoints
from rocketbroker.metrics.family import Block, Family, Report, counter, gauge, histogram
from rocketbroker.metrics.otlp_exporter import OtlpExporter, resource_metrics
from rocketbroker.metrics.push_exporter import Outcome
from tests.support.fakes import FakeClock
from tests.support.otlp_collector import OtlpCollector
from tests.support.ports import free_ports


def families() -> list[Family]:
    times = Histogram((1, 10))
    times.add(5)
    return [
        gauge("rocketmq_topic_number", [({}, 6)]),
        gauge("rocketbroker_replication_lag_seconds", [({"slave": "192.0.2.1:1"}, 0.5)]),
        counter("rocketmq_messages_in_total", [({"topic": 'a "b"\nü'}, 3), ({"cluster": "own"}, 4)]),
        histogram("rocketmq_rpc_latency_milliseconds", [({"request_code": "pull_message"}, times)], "Rpc latency"),
    ]


async def batch() -> Batch:
    blocks = [Block("broker-meter", families())]
    report = Report({"cluster": "C", "node_id": "broker-a"}, 100, blocks, instance="broker-a_1")
    async for each in DataPoints(FakeClock(2_000), in_delta=False).batches(report, 100):
        return each
    raise AssertionError("there is no batch")


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as found:
        yield found


@pytest.fixture
async def exporter(collector: OtlpCollector) -> AsyncIterator[OtlpExporter]:
    found = OtlpExporter(OtlpTarget(f"127.0.0.1:{collector.port}", is_tls=False), {"api-key": "k"}, 30.0)
    yield found
    await found.stop()


async def test_a_collector_gets_names_units_and_values_of_opentelemetry(
    collector: OtlpCollector, exporter: OtlpExporter
):
    assert await exporter.export(await batch(), in_delta=False) is Outcome.TAKEN

    found = {metric.name: metric for _, metric in collector.metrics()}
    assert {name: metric.unit for name, metric in found.items()} == {
        "rocketmq_topic_number": "",
        "rocketbroker_replication_lag": "seconds",
        "rocketmq_messages_in_total": "",
        "rocketmq_rpc_latency": "milliseconds",
    }
    (number,) = found["rocketmq_topic_number"].gauge.data_points
    assert (number.as_int, number.time_unix_nano) == (6, 2_000_000_000)
    assert {each.key: each.value.string_value for each in number.attributes} == {"cluster": "C", "node_id": "broker-a"}
    assert found["rocketbroker_replication_lag"].gauge.data_points[0].as_double == 0.5
    total = found["rocketmq_messages_in_total"].sum
    assert total.is_monotonic
    assert total.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {each.key: each.value.string_value for each in total.data_points[0].attributes}["topic"] == 'a "b"\nü'
    assert {each.key: each.value.string_value for each in total.data_points[1].attributes}["cluster"] == "own"
    (times,) = found["rocketmq_rpc_latency"].histogram.data_points
    assert (times.count, times.sum, list(times.bucket_counts), list(times.explicit_bounds)) == (
        1,
        5,
        [0, 1, 0],
        [1, 10],
    )
    assert {scope for scope, _ in collector.metrics()} == {"broker-meter"}
    assert collector.headers["api-key"] == "k"


@pytest.mark.parametrize("in_delta", [True, False])
async def test_a_line_of_the_log_is_the_same_in_json(in_delta: bool):
    each = await batch()
    line = await log_exporter.json_line(each, in_delta=in_delta)

    parsed = json_format.Parse(line, ResourceMetrics())
    (instance,) = parsed.resource.attributes
    assert (instance.key, instance.value.string_value) == ("service.instance.id", "broker-a_1")
    assert parsed == await resource_metrics(each, in_delta=in_delta)


async def test_a_line_of_the_log_is_one_of_json(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    each = await batch()
    assert await log_exporter.LogExporter().export(each, in_delta=False) is Outcome.TAKEN

    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert json_format.Parse(record.getMessage(), ResourceMetrics()) == await resource_metrics(each, in_delta=False)


async def test_a_refused_batch_is_no_failure_of_the_collector(
    collector: OtlpCollector, exporter: OtlpExporter, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    each = await batch()
    collector.status = grpc.StatusCode.INVALID_ARGUMENT
    assert await exporter.export(each, in_delta=False) is Outcome.REFUSED
    collector.status = grpc.StatusCode.OK
    assert await exporter.export(each, in_delta=False) is Outcome.TAKEN

    (line,) = [line for line in caplog.messages if line.startswith("metrics: ")]
    assert "refused a batch: INVALID_ARGUMENT: the collector is full" in line


async def test_a_failure_and_the_next_success_are_logged_once(
    collector: OtlpCollector, exporter: OtlpExporter, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    each = await batch()
    collector.status = grpc.StatusCode.UNAVAILABLE
    assert [await exporter.export(each, in_delta=False) for _ in range(2)] == [Outcome.UNREACHABLE] * 2
    collector.status = grpc.StatusCode.OK
    assert [await exporter.export(each, in_delta=False) for _ in range(2)] == [Outcome.TAKEN] * 2

    lines = [line for line in caplog.messages if line.startswith("metrics: ")]
    assert len(lines) == 2
    assert "UNAVAILABLE: the collector is full; it is tried again at each interval" in lines[0]
    assert lines[1].endswith("takes them again")


async def test_a_dead_collector_is_tried_again(caplog: pytest.LogCaptureFixture):
    port = free_ports()
    exporter = OtlpExporter(OtlpTarget(f"127.0.0.1:{port}", is_tls=False), {}, 30.0)
    assert await exporter.export(await batch(), in_delta=False) is Outcome.UNREACHABLE
    assert "UNAVAILABLE" in caplog.text
    async with OtlpCollector(port) as collector:
        for _ in range(600):
            if await exporter.export(await batch(), in_delta=False) is Outcome.TAKEN:
                break
            await asyncio.sleep(0.1)
        assert collector.requests
    await exporter.stop()


async def test_a_frozen_collector_is_given_up_in_time(caplog: pytest.LogCaptureFixture):
    frozen = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{frozen.getsockname()[1]}"
    exporter = OtlpExporter(OtlpTarget(address, is_tls=False), {}, 0.05)

    assert await exporter.export(await batch(), in_delta=False) is Outcome.UNREACHABLE
    assert "DEADLINE_EXCEEDED" in caplog.text
    await exporter.stop()
    frozen.close()


async def test_rejected_points_are_logged(
    collector: OtlpCollector, exporter: OtlpExporter, caplog: pytest.LogCaptureFixture
):
    collector.rejected = 2
    assert await exporter.export(await batch(), in_delta=False) is Outcome.TAKEN

    assert "the collector rejected 2 data points: too old" in caplog.text
