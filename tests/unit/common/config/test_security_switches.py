"""Switches of access control and TLS keep a server from starting open."""

from pathlib import Path

import pytest

from rocketbroker.common.config import BrokerConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.hot_change import NotChangeableError, apply_updates
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.errors import ConfigError

LOADERS = [load_broker_settings, load_namesrv_settings]
ON = [
    ("aclEnable", "true"),
    ("authenticationEnabled", "true"),
    ("authenticationEnabled", " TRUE "),
    ("authorizationEnabled", "true"),
    ("authorizationEnabled", "yes"),
    ("migrateAuthFromV1Enabled", "true"),
    ("useTLS", "true"),
    ("tlsEnable", "true"),
    ("tls.server.mode", "enforcing"),
    ("tls.server.mode", "permissive"),
    ("tls.server.need.client.auth", "require"),
    ("tls.server.certPath", "/etc/rocketmq/server.pem"),
]
OFF = [
    ("aclEnable", "false"),
    ("authenticationEnabled", "False"),
    ("authorizationEnabled", ""),
    ("useTLS", "false"),
    ("tlsEnable", "false"),
    ("tls.server.mode", "disabled"),
    ("tls.server.need.client.auth", "none"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.properties"


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("name", "value"), ON)
def test_no_server_starts_where_one_is_on(load, file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError) as caught:
        load(file)

    (line,) = str(caught.value).splitlines()
    assert f"{file}:1: {name}={value.lstrip()} is rejected: this version has no " in line
    assert line.endswith("remove the setting, and limit who can connect by protectedMode, bindAddress or a firewall")


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("name", "value"), OFF)
def test_one_that_is_off_is_a_warning(load, file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    settings = load(file)

    assert settings.not_acted_on[name] == value
    (warning,) = settings.warnings
    assert f"{name} is a setting of RocketMQ" in warning


@pytest.mark.parametrize(("name", "value"), ON)
def test_none_can_be_turned_on_at_run_time(name: str, value: str):
    models = (BrokerConfig(broker_ip1="127.0.0.1"), NamesrvConfig(), TransportConfig())

    with pytest.raises(NotChangeableError, match="is rejected: this version has no "):
        apply_updates(models, {"traceOn": "false", name: value})
    assert models[0].trace_on is True
