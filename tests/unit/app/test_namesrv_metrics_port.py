"""The port of metrics of a name server in this process."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.common.config.load import NamesrvSettings, load_namesrv_settings
from rocketbroker.common.errors import ConfigError
from tests.support.metrics_script import read_page, shapes
from tests.support.running import running
from tests.support.waiting import until


def settings(folder: Path, **given: str) -> NamesrvSettings:
    path = folder / "namesrv.properties"
    chosen = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": f"{folder}/kv.json", **given}
    path.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    return load_namesrv_settings(path)


ON = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0", "metricsLabel": "zone:a"}


async def test_without_an_exporter_there_is_no_port(tmp_path: Path):
    assert NamesrvController(settings(tmp_path)).metrics is None


async def test_registered_brokers_and_requests_are_metrics(tmp_path: Path):
    namesrv = NamesrvController(settings(tmp_path, **ON))
    async with running(namesrv):
        assert namesrv.metrics is not None
        url = f"http://127.0.0.1:{namesrv.metrics.port}"
        async with running(BrokerController.bind(broker_settings(0, tmp_path / "broker", namesrv.address))):
            await until(lambda: bool(namesrv.route_info_manager.brokers.live))
            page = await asyncio.to_thread(read_page, f"{url}/metrics")
            ready = json.loads(await asyncio.to_thread(read_page, f"{url}/readyz"))

    labels = f'zone="a",node_type="nameserver",node_id="{namesrv.address}"'
    assert f"rocketbroker_namesrv_brokers{{{labels}}} 1.0" in page
    assert f'rocketbroker_namesrv_broker_names{{{labels},cluster="DefaultCluster"}} 1.0' in page
    assert 'request_code="register_broker"' in page
    assert {name for name in shapes(page) if not name.startswith("rocketbroker_")} == set()
    assert ready["conditions"] == {"routes": {"ok": True, "reason": "1 brokers are registered"}}


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in [name for name in sys.modules if name.startswith("rocketbroker.metrics") or "metrics_port" in name]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"metricsExporterType=PROM needs the package .*rocketbroker\[metrics\]"):
        NamesrvController(settings(tmp_path, **ON))
