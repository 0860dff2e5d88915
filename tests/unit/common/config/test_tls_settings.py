"""Settings of TLS: where they come from, which of them wins, and which contradict."""

from pathlib import Path

import pytest

from rocketbroker.common.config import tls_settings
from rocketbroker.common.config.current_settings import broker_lines, config_text
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.common.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.properties"


def test_the_file_of_the_server_wins_over_that_of_tls_and_the_environment(file: Path, tmp_path: Path):
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.certPath=a.pem\ntls.server.keyPath=a.key\ntls.server.mode=enforcing\n")
    file.write_text(f"tls.config.file={tls}\ntls.server.keyPath=c.key\n")
    options = {"JAVA_OPT_EXT": "-Xmx1g -Dtls.server.keyPath=b.key -Dtls.server.certPath='b c.pem' -Dother=1"}

    settings = load_broker_settings(file, environment=options).transport

    assert settings.tls_server_mode == "enforcing"
    assert settings.tls_server_cert_path == "b c.pem"
    assert settings.tls_server_key_path == "c.key"


def test_the_environment_may_name_the_file(tmp_path: Path):
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.test.mode.enable=true\n")

    settings = load_broker_settings(environment={"JAVA_OPT": f"-Dtls.config.file={tls}"})

    assert settings.transport.tls_test_mode_enable


def test_a_name_server_has_them_too(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_OPT", "-Dtls.test.mode.enable=true")
    file.write_text("tls.server.mode=Enforcing\n")

    settings = load_namesrv_settings(file).transport

    assert (settings.tls_server_mode, settings.tls_test_mode_enable) == ("enforcing", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls.server.mode=strict", "tls.server.mode=strict is not valid: it takes disabled or permissive or enforcing"),
        ("tls.server.mode=enforcing", "tls.server.mode=enforcing needs a certificate"),
        ("tls.server.certPath=a.pem", "tls.server.certPath and tls.server.keyPath belong together"),
        ("tls.client.keyPath=a.key", "tls.client.certPath and tls.client.keyPath belong together"),
        ("tls.protocols=TLSv1.1", "tls.protocols=TLSv1.1 is rejected: TLSv1.1 is not supported; write TLSv1.2"),
        ("tls.ciphers=a:b", "tls.ciphers=a:b is not valid: it takes names of ciphers joined by commas"),
        ("tls.server.need.client.auth=always", "it takes none or optional or require"),
        ("tls.config.file=/nowhere/tls.properties", "/nowhere/tls.properties: cannot read the settings file"),
        ("tls.server.certpath=a.pem", "unknown setting tls.server.certpath; did you mean tls.server.certPath?"),
    ],
)
def test_wrong_ones_are_refused(file: Path, text: str, reason: str):
    file.write_text(f"{text}\n")

    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file, environment={})

    assert reason in str(caught.value)


def test_another_setting_in_the_file_of_tls_is_refused(file: Path, tmp_path: Path):
    tls = tmp_path / "tls.properties"
    tls.write_text("brokerName=a\n")
    file.write_text(f"tls.config.file={tls}\n")

    with pytest.raises(ConfigError, match=r"tls\.properties:1: brokerName is no setting of TLS"):
        load_broker_settings(file, environment={})


def test_an_open_quotation_is_refused():
    with pytest.raises(ConfigError, match="environment variable JAVA_OPT: No closing quotation"):
        load_broker_settings(environment={"JAVA_OPT": "-Dtls.server.certPath='a"})


@pytest.mark.parametrize("value", ["secret", "s\u00e9cret # '\""])
def test_a_password_is_never_shown(file: Path, value: str):
    file.write_text(f"tls.server.keyPassword={value}\n", encoding="utf-8")

    settings = load_broker_settings(file, environment={})

    assert settings.transport.tls_server_key_password == value
    assert "tls.server.keyPassword=******" in broker_lines(settings)
    assert "tls.server.keyPassword=******" in config_text(settings.models)
    assert value not in config_text(settings.models)


def test_a_wrong_password_is_not_shown_either(file: Path):
    file.write_text("tls.server.keyPassword=" + "x" * 70_000 + "\n")

    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file, environment={})

    assert str(caught.value).endswith("tls.server.keyPassword=****** is not valid: it takes text")


def test_a_proxy_takes_those_of_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tls, conf = tmp_path / "tls.properties", tmp_path / "rmq-proxy.json"
    tls.write_text("tls.enable=true\ntls.client.trustCertPath=a.pem\ntls.server.mode=enforcing\n")
    monkeypatch.setenv("JAVA_OPT", f"-Dtls.config.file={tls}")
    conf.write_text('{"tls.client.trustCertPath": "b.pem"}')

    settings = load_proxy_settings(conf)

    assert (settings.proxy.tls_enable, settings.proxy.tls_client_trust_cert_path) == (True, "b.pem")
    assert settings.warnings == ()
    conf.write_text('{"tls.client.certPath": "b.pem"}')
    with pytest.raises(ConfigError, match="belong together"):
        load_proxy_settings(conf)


def test_printed_settings_are_settings(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tls_settings, "TLS_FILE", "/nowhere/rocketmq/tls.properties")
    file.write_text("tls.config.file=/nowhere/rocketmq/tls.properties\n")

    assert load_broker_settings(file, environment={}).transport.tls_enable is False


def test_no_password_is_shown_by_another_server(file: Path):
    """One of the gRPC port has no effect in the file of a broker."""
    file.write_text("tlsKeyPassword=hunter2\n")

    settings = load_broker_settings(file, environment={})

    assert "hunter2" not in "\n".join(broker_lines(settings))
    assert "hunter2" not in repr(ProxyConfig(tls_key_password="hunter2"))
    assert "hunter2" not in config_text([ProxyConfig(tls_key_password="hunter2")])
