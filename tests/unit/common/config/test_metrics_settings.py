"""Settings of metrics that are secret, and labels that break pages."""

from pathlib import Path

import pytest

from rocketbroker.common.config.current_settings import config_text
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def test_headers_of_the_collector_are_shown_to_nobody(file: Path):
    file.write_text("metricsGrpcExporterHeader=Authorization:s3cret\n")
    text = config_text(load_broker_settings(file).models)
    assert "metricsGrpcExporterHeader=******" in text

    file.write_text("metricsGrpcExporterHeader=s3cret\n")
    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file)
    assert "s3cret" not in str(caught.value)
    assert "metricsGrpcExporterHeader=****** is not valid: it takes name:value" in str(caught.value)


@pytest.mark.parametrize("name", ["le", "quantile", "otel_scope_name", "__name__"])
def test_labels_of_prometheus_are_rejected(file: Path, name: str):
    file.write_text(f"metricsLabel=zone:a,{name}:b\n")
    with pytest.raises(ConfigError, match=f"is rejected: Prometheus needs the label {name} for itself; choose another"):
        load_broker_settings(file)
