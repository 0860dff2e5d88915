import asyncio
from pathlib import Path

import pytest

from rocketbroker.app.launch.cluster_layout import LAYOUTS, ClusterLayout
from rocketbroker.app.launch.supervised_processes import Program
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.errors import ConfigError


def made(
    layout: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str = "127.0.0.1",
    advertise: str = "127.0.0.1",
    **properties: str,
) -> list[Program]:
    """Return the programs that a layout would run."""
    programs: list[Program] = []
    cluster = ClusterLayout(
        layout, 0, 10911, store, host=host, advertise=advertise, properties=properties, show=lambda _line: None
    )

    async def add(program: Program) -> str:
        programs.append(program)
        return "127.0.0.1:9876"

    monkeypatch.setattr(cluster.processes, "add", add)
    asyncio.run(cluster.start())
    return programs


def test_masters_start_before_their_slaves_on_ports_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = made("2m-2s-async", tmp_path, monkeypatch)

    assert [program.name for program in programs] == ["namesrv", "broker-a", "broker-a-s", "broker-b", "broker-b-s"]
    settings = [load_broker_settings(program.arguments[1]) for program in programs[1:]]
    assert [each.transport.listen_port for each in settings] == [10911, 10931, 10951, 10971]
    assert [each.broker.broker_id for each in settings] == [0, 1, 0, 1]
    assert [each.store.broker_role for each in settings] == ["ASYNC_MASTER", "SLAVE", "ASYNC_MASTER", "SLAVE"]
    assert {each.broker.namesrv_addr for each in settings} == {"127.0.0.1:9876"}


def test_a_restarted_name_server_keeps_its_port_and_members_use_their_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = made("2m-2s-async", tmp_path, monkeypatch, host="0.0.0.0", advertise="192.0.2.1")

    assert load_namesrv_settings(programs[0].arguments[1]).transport.listen_port == 9876
    settings = [load_broker_settings(program.arguments[1]) for program in programs[1:]]
    assert {each.broker.namesrv_addr for each in settings} == {"127.0.0.1:9876"}
    assert {(each.broker.broker_ip1, each.broker.broker_ip2) for each in settings} == {("192.0.2.1", "127.0.0.1")}


def test_an_ipv6_address_has_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = made("2m-noslave", tmp_path, monkeypatch, host="::1", advertise="::1")

    settings = [load_broker_settings(program.arguments[1]) for program in programs[1:]]
    assert {each.broker.namesrv_addr for each in settings} == {"[::1]:9876"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_has_the_brokers_of_its_folder_in_conf(layout: str):
    folder = Path(__file__).resolve().parents[4] / "conf" / layout

    assert {f"{member.title}.properties" for member in LAYOUTS[layout]} == {path.name for path in folder.iterdir()}


def test_properties_go_to_each_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = made("2m-2s-sync", tmp_path, monkeypatch, regionId=r"C:\data", inSyncReplicas="1")

    brokers = [load_broker_settings(program.arguments[1]) for program in programs[1:]]
    assert [settings.broker.region_id for settings in brokers] == [r"C:\data"] * 4
    assert [settings.store.in_sync_replicas for settings in brokers] == [1] * 4
    with pytest.raises(ConfigError, match="brokerRole is set by the server itself"):
        made("2m-2s-sync", tmp_path, monkeypatch, brokerRole="SLAVE")
