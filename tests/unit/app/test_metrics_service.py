"""The choice of an exporter by the settings."""

import logging
import sys
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.common.errors import ConfigError
from tests.support.otlp_collector import OtlpCollector
from tests.support.running import running
from tests.support.waiting import until


def broker(folder: Path, **settings: str) -> BrokerController:
    return BrokerController.bind(broker_settings(0, folder, "", properties=settings))


async def test_a_broker_sends_its_metrics_to_a_collector(tmp_path: Path):
    async with OtlpCollector() as collector:
        settings = {
            "metricsExporterType": "OTLP_GRPC",
            "metricsGrpcExporterTarget": f"http://127.0.0.1:{collector.port}",
            "metricsGrpcExporterHeader": "Authorization:Bearer x,tenant:7",
            "metricGrpcExporterIntervalInMills": "100",
            "metricsExportBatchMaxDataPoints": "20",
            "metricsInDelta": "true",
            "metricsLabel": "zone:a",
        }
        async with running(broker(tmp_path, **settings)) as controller:
            assert controller.metrics_port == 0
            await collector.arrival()
            await until(lambda: "rocketbroker_event_loop_lag" in {each.name for _, each in collector.metrics()})

    scopes = {metric.name: scope for scope, metric in collector.metrics()}
    assert scopes["rocketmq_topic_number"] == "broker-meter"
    assert scopes["rocketbroker_event_loop_lag"] == "rocketbroker"
    assert (collector.headers["authorization"], collector.headers["tenant"]) == ("Bearer x", "7")
    (point, *_) = next(
        metric for _, metric in collector.metrics() if metric.name == "rocketmq_topic_number"
    ).gauge.data_points
    labels = {each.key: each.value.string_value for each in point.attributes}
    assert labels["zone"] == "a"
    assert labels["aggregation"] == "delta"
    sizes = [
        sum(len(metric.gauge.data_points) + len(metric.sum.data_points) + len(metric.histogram.data_points)
            for resource in request.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics)
        for request in collector.requests
    ]  # fmt: skip
    assert max(sizes) <= 20


async def test_a_stop_sends_the_counts_of_the_last_interval(tmp_path: Path):
    async with OtlpCollector() as collector:
        settings = {
            "metricsExporterType": "OTLP_GRPC",
            "metricsGrpcExporterTarget": f"http://127.0.0.1:{collector.port}",
            "metricGrpcExporterIntervalInMills": "600000",
            "metricsInDelta": "true",
        }
        async with running(broker(tmp_path, **settings)):
            assert collector.requests == []

    assert "rocketmq_topic_number" in {each.name for _, each in collector.metrics()}


async def test_metrics_that_no_file_takes_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL, "rocketbroker.metrics.log_exporter")
    caplog.handler.setLevel(logging.WARNING)
    async with running(broker(tmp_path, metricsExporterType="LOG")):
        pass

    assert "there are no log files to write metrics to; set logDir" in caplog.text


async def test_a_broker_logs_its_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "rocketbroker.metrics.log_exporter")
    settings = {"metricsExporterType": "LOG", "metricLoggingExporterIntervalInMills": "100"}
    async with running(broker(tmp_path, **settings)):
        await until(lambda: '"rocketmq_topic_number"' in caplog.text)


async def test_a_missing_collector_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no collector; set metricsGrpcExporterTarget=http://HOST:4317"):
        broker(tmp_path, metricsExporterType="OTLP_GRPC")


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto", None)
    monkeypatch.delitem(sys.modules, "rocketbroker.metrics.otlp_exporter", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.proto.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"metricsExporterType=OTLP_GRPC needs the package .*rocketbroker\[otlp\]"):
        broker(tmp_path, metricsExporterType="OTLP_GRPC", metricsGrpcExporterTarget="collector.example:4317")
