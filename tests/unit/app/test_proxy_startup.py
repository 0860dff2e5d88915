"""Start of the proxy: what --check asks."""

from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from rocketbroker.app import probe
from rocketbroker.app.proxy_startup import _probe
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from tests.support.tls_files import TlsFiles


@pytest.mark.parametrize(("mode", "is_plain"), [("enforcing", False), ("permissive", True)])
def test_the_port_of_a_broker_is_asked_as_the_broker_serves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, is_plain: bool
):
    asked: list[ProxyConfig] = []
    monkeypatch.setattr(probe, "probe_grpc", lambda _address, config: asked.append(config))
    monkeypatch.setattr(probe, "report", lambda *_: None)
    broker = tmp_path / "broker.conf"
    settings = TlsFiles(tmp_path).of_server(mode=mode)
    broker.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    given = [Entry("proxyMode", "local", "test"), Entry("brokerConfigPath", str(broker), "test")]
    _probe(load_proxy_settings(None, given))
    assert [each.grpc_plain_text_enable for each in asked] == [is_plain]
