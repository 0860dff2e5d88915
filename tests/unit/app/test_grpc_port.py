"""The gRPC port as composed: what its settings become."""

import asyncio
import ssl
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from rocketbroker.app import grpc_port
from rocketbroker.app.grpc_port import broker_port, cluster_port
from rocketbroker.common.certificates import RevocationListError, self_signed_certificate
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.proxy.messaging_pb2 import AddressScheme
from tests.support.running import running
from tests.support.tls_files import TlsFiles
from tests.support.waiting import until

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("serve_addr", "host", "scheme"),
    [
        ("", "127.0.0.1", AddressScheme.IPv4),
        ("proxy.example", "proxy.example", AddressScheme.DOMAIN_NAME),
        ("2001:db8::1", "2001:db8::1", AddressScheme.IPv6),
    ],
)
async def test_routes_have_the_address_of_the_settings(
    serve_addr: str, host: str, scheme: AddressScheme, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    config = ProxyConfig(namesrv_addr=NOWHERE, grpc_server_port=0, local_serve_addr=serve_addr)
    async with running(cluster_port(config, "proxy-1", "127.0.0.1")) as port:
        [address] = port._endpoints.addresses
        assert (address.host, address.port) == (host, port.port)
        assert port._endpoints.scheme == scheme

    assert sum("gRPC port: routes lead clients to" in each for each in caplog.messages) == 1


async def test_the_log_says_that_a_load_balancer_stays_in_routes(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    config = ProxyConfig(namesrv_addr=NOWHERE, grpc_server_port=0)
    async with running(cluster_port(config, "proxy-1", "127.0.0.1")) as port:
        line = f"routes lead clients to the host that they ask at, or to 127.0.0.1:{port.port} (localServeAddr)"
        assert f"gRPC port: {line}" in caplog.messages


def test_limits_are_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grpc_port, "connection_limit", lambda: 1000)
    config = ProxyConfig(
        grpc_max_inbound_message_size=1 << 21,
        grpc_max_concurrent_calls_per_connection=7,
        grpc_max_open_calls=20,
        grpc_client_idle_time_mills=9000,
        grpc_shutdown_time_seconds=10,
        max_connections=11,
        max_connections_per_address=12,
        max_held_bytes=1 << 26,
    )
    limits = grpc_port._limits(config)

    assert (limits.max_message_size, limits.max_calls, limits.max_open_calls) == (1 << 21, 7, 20)
    assert (limits.max_idle_s, limits.max_stop_s) == (9.0, 10.0)
    connections = limits.connections
    assert (connections.max_connections, connections.max_connections_per_address) == (11, 12)
    assert (connections.max_held_bytes, connections.max_descriptor) == (1 << 26, 1000)
    assert connections.max_connections_cause == "maxConnections"


def test_connections_are_limited_by_open_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grpc_port, "connection_limit", lambda: 1000)
    connections = grpc_port._limits(ProxyConfig()).connections

    assert connections.max_connections == 333, "each has three ends"
    assert connections.max_connections_cause.startswith("ulimit -n: connections may open 1,000 files")


@pytest.mark.parametrize(
    ("of_a_connection", "open_calls", "most"), [(2**31 - 1, 50_000, 25_000), (9, 10, 5), (9, 1, 1)]
)
def test_one_connection_has_at_most_half_of_the_calls(of_a_connection: int, open_calls: int, most: int):
    config = ProxyConfig(grpc_max_concurrent_calls_per_connection=of_a_connection, grpc_max_open_calls=open_calls)

    assert grpc_port._limits(config).max_calls == most


INNER = '{"accessKey":"inner","secretKey":"s3cret"}'


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"authentication_enabled": True}, "authenticationEnabled=true needs innerClientAuthenticationCredentials"),
        ({"inner_client_authentication_credentials": "{}"}, "innerClientAuthenticationCredentials"),
        ({"authentication_provider": "com.example.Mine"}, "authenticationProvider=com.example.Mine is rejected"),
    ],
)
def test_access_control_that_cannot_work_is_an_error(settings: dict[str, object], reason: str):
    with pytest.raises(ConfigError, match=reason):
        cluster_port(ProxyConfig.model_validate({"namesrv_addr": NOWHERE} | settings), "proxy-1", "127.0.0.1")


def test_an_open_port_with_inner_credentials_is_logged(caplog: pytest.LogCaptureFixture):
    config = ProxyConfig(namesrv_addr=NOWHERE, inner_client_authentication_credentials=INNER)
    assert cluster_port(config, "proxy-1", "127.0.0.1").access is None
    assert "everyone who reaches the gRPC port may do there what clients do, as User:inner" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_brokers_port_has_the_users_of_the_broker_alone(tmp_path: Path):
    path = tmp_path / "rmq-proxy.json"
    path.write_text('{"authenticationEnabled": true}')
    with pytest.raises(ConfigError, match="needs the same in the settings of the broker"):
        broker_port(None, BrokerConfig(proxy_config_path=str(path)), TransportConfig(), SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize("is_self_signed", [False, True])
@pytest.mark.parametrize("demand", ["none", "optional", "require"])
def test_a_broker_demands_certificates_on_its_grpc_port_too(
    demand: str, is_self_signed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    files = TlsFiles(tmp_path)
    given = files.of_server(mode="enforcing", need_client_auth=demand, trustCertPath=str(files.ca))
    if is_self_signed:
        own = {f"tls.server.{each}Path" for each in ("cert", "key")}
        given = {name: value for name, value in given.items() if name not in own} | {"tls.test.mode.enable": "true"}
    found = grpc_port._tls_entries(TransportConfig.model_validate(given))
    settings = load_proxy_settings(None, [], found).proxy
    assert (settings.tls_test_mode_enable, settings.grpc_plain_text_enable) == (is_self_signed, False)
    tls = grpc_port._tls(settings)
    assert tls is not None
    assert tls.certificate.client_issuers == (files.ca.read_bytes() if demand == "require" else b"")
    entries = {each.key: each.value for each in found}
    assert entries["tlsTrustCertPath"] == (str(files.ca) if demand == "require" else "")
    assert ("need.client.auth=optional counts for the other ports" in caplog.text) is (demand == "optional")


def test_issuers_of_the_system_are_those_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = TlsFiles(tmp_path)
    given = TransportConfig.model_validate(files.of_server(need_client_auth="require", authClient="true"))
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    assert grpc_port._issuers(given) == str(files.ca)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"name one by tls\.server\.trustCertPath"):
        grpc_port._issuers(given)


def test_a_revocation_list_counts_even_if_the_certificate_cannot_be_used(tmp_path: Path):
    files = TlsFiles(tmp_path)
    config = ProxyConfig(
        tls_test_mode_enable=False,
        tls_cert_path=f"{tmp_path}/server.pem",
        tls_key_path=f"{tmp_path}/server.key",
        tls_trust_cert_path=str(files.ca),
    )
    tls = grpc_port._tls(config)
    assert tls is not None
    assert tls.reload is not None
    assert tls.reload() == tls.certificate
    (tmp_path / "server.key").unlink()
    files.ca.write_bytes(files.authority.chain + files.revocation_list("client"))
    with pytest.raises(RevocationListError):
        tls.reload()


def test_a_certificate_that_is_missing_is_an_error():
    config = ProxyConfig(namesrv_addr=NOWHERE, tls_test_mode_enable=False, tls_cert_path="/none", tls_key_path="/none")
    with pytest.raises(ConfigError, match="/none is no file"):
        cluster_port(config, "proxy-1", "127.0.0.1")


async def test_files_of_the_certificate_may_be_replaced_one_after_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    first, second = (self_signed_certificate(SystemClock()) for _ in range(2))
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    key.touch(0o600)
    chain.write_bytes(first.chain)
    key.write_bytes(first.key)
    config = ProxyConfig(
        namesrv_addr=NOWHERE,
        grpc_server_port=0,
        tls_test_mode_enable=False,
        tls_cert_path=str(chain),
        tls_key_path=str(key),
        tls_cert_watch_interval_ms=1000,
    )
    async with running(cluster_port(config, "proxy-1", "127.0.0.1")) as port:

        async def seen() -> bytes:
            found = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port.port))
            return found.encode()

        assert await seen() == first.chain
        chain.write_bytes(second.chain)
        await until(lambda: "the certificate stays as it is" in caplog.text)
        assert await seen() == first.chain
        key.write_bytes(second.key)
        await until(lambda: "the certificate has been replaced" in caplog.text)
        assert await seen() == second.chain
