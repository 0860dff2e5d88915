"""Settings of the gRPC port: rmq-proxy.json, and what goes before it."""

from pathlib import Path

import pytest

from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import ProxyConfig, grpc_properties
from rocketbroker.common.config.proxy_settings import least_held_bytes, load_proxy_settings
from rocketbroker.common.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rmq-proxy.json"


def test_without_a_file_there_are_defaults():
    settings = load_proxy_settings()

    assert settings.proxy == ProxyConfig()
    assert settings.warnings == ()


def test_a_file_has_text_numbers_and_booleans(file: Path):
    file.write_text(
        '{"namesrvAddr": "10.0.0.1:9876", "grpcServerPort": 8181, "maxMessageSize": "1000", "proxyMode": "local", '
        '"tlsTestModeEnable": false, "enableProxyAutoRenew": "false"}'
    )
    proxy = load_proxy_settings(file).proxy

    assert (proxy.namesrv_addr, proxy.grpc_server_port, proxy.max_message_size) == ("10.0.0.1:9876", 8181, 1000)
    assert (proxy.proxy_mode, proxy.tls_test_mode_enable, proxy.enable_proxy_auto_renew) == ("local", False, False)


@pytest.mark.parametrize("inbound", [1 << 20, 130 << 20])
def test_memory_for_one_request_is_enough(file: Path, inbound: int):
    held = max(least_held_bytes(inbound), 33_554_432)
    file.write_text(f'{{"maxHeldBytes": {held}, "grpcMaxInboundMessageSize": {inbound}}}')

    assert load_proxy_settings(file).proxy.max_held_bytes == held


def test_the_command_line_goes_before_the_file(file: Path):
    file.write_text('{"namesrvAddr": "10.0.0.1:9876", "grpcServerPort": 8181}')
    proxy = load_proxy_settings(file, [Entry("namesrvAddr", "10.0.0.2:9876", "the command line")]).proxy

    assert (proxy.namesrv_addr, proxy.grpc_server_port) == ("10.0.0.2:9876", 8181)


def test_settings_without_effect_are_a_warning_or_a_note(file: Path):
    file.write_text('{"grpcThreadPoolNums": 20, "sendLatencyEnable": true}')
    settings = load_proxy_settings(file)

    (warning,) = settings.warnings
    assert warning.startswith(f"{file}: sendLatencyEnable=true has no effect in this version: ")
    (note,) = settings.notes
    assert "(grpcThreadPoolNums)" in note


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"grpcServerPrt": 8081}', "did you mean grpcServerPort"),
        ('{"grpcServerPort": 65536}', "grpcServerPort"),
        ('{"grpcServerPort": 80.5}', "grpcServerPort"),
        ('{"grpcServerPort": true}', "grpcServerPort"),
        ('{"maxMessageSize": -1}', "maxMessageSize"),
        ('{"enableProxyAutoRenew": "yes"}', "enableProxyAutoRenew"),
        ('{"namesrvAddr": "10.0.0.1"}', "namesrvAddr"),
        ('{"grpcServerPort": null}', "grpcServerPort is NoneType; give text, a number, true or false"),
        ('{"grpcServerPort": {"a": 1}}', "grpcServerPort is dict"),
        ('{"grpcServerPort": [8081]}', "grpcServerPort is list"),
        ("[8081]", 'holds no JSON object; write settings as {"grpcServerPort": 8081}'),
        ("grpcServerPort=8081", "cannot be read: Expecting value"),
        ("", "cannot be read: Expecting value"),
        ("{" + " " * (1 << 20) + "}", "has over 1,048,576 bytes"),
    ],
    ids=range(14),
)
def test_a_wrong_file_is_an_error_with_the_reason(file: Path, text: str, reason: str):
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_proxy_settings(file)

    assert reason in str(raised.value)
    assert str(file) in str(raised.value)


def test_all_errors_are_named(file: Path):
    file.write_text('{"grpcServerPort": -1, "maxMessageSize": "many"}')
    with pytest.raises(ConfigError) as raised:
        load_proxy_settings(file)

    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("content", [None, b"\xff\xfe{}"])
def test_a_file_that_cannot_be_read_is_an_error(file: Path, content: bytes | None):
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_proxy_settings(file)


def test_a_broker_has_the_port_by_two_settings():
    assert grpc_properties(0) == {"grpcServerEnable": "true", "grpcServerPort": "0"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"tlsCertPath": "/c.pem", "tlsTestModeEnable": false}', "tlsCertPath and tlsKeyPath belong together"),
        ('{"proxyMode": "both"}', "proxyMode=both is unknown; write CLUSTER or LOCAL"),
        ('{"tlsTrustCertPath": "/ca.pem", "tlsTestModeEnable": false}', "tlsTrustCertPath needs TLS: set tlsCertPath"),
        ('{"grpcPlainTextEnable": false, "tlsTestModeEnable": false}', "grpcPlainTextEnable=false needs TLS"),
        (
            '{"maxHeldBytes": 133120000}',
            "maxHeldBytes=133,120,000 has no room for one request of grpcMaxInboundMessageSize=136,314,880; set",
        ),
        (
            '{"maxHeldBytes": 33554432, "grpcMaxInboundMessageSize": 33554432}',
            "set maxHeldBytes to at least 34,144,256",
        ),
    ],
    ids=range(6),
)
def test_settings_that_contradict_each_other_are_an_error(file: Path, text: str, reason: str):
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_proxy_settings(file)

    assert reason in str(raised.value)
