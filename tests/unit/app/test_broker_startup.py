"""``mqbroker`` with several files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.app import broker_startup
from rocketbroker.common.config.load import BrokerSettings, load_broker_settings
from rocketbroker.common.errors import ConfigError
from tests.support.our_servers import OurServers, make_topic, wait_serving
from tests.support.ports import free_ports

OK = 20_000


def files(folder: Path, **same: str) -> list[str]:
    """Write the files of two brokers; return the options for them."""
    options = []
    for number, name in enumerate("ab"):
        settings = {
            "brokerName": name, "listenPort": 10911 + number * 20, "storePathRootDir": folder / name, **same,
        }  # fmt: skip
        path = folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options += ["-c", str(path)]
    return options


@pytest.mark.parametrize(
    ("same", "text"),
    [
        ({"brokerName": "x"}, "the same brokerName and brokerId: x:0"),
        ({"listenPort": "10911"}, "the same listenPort: 10911"),
        ({"storePathRootDir": "/s"}, "the same storePathRootDir: /s"),
        ({"haListenPort": "9000"}, "the same haListenPort: 9000"),
        ({"haListenPort": "10929"}, "the same port as haListenPort and VIP port: 10929"),
    ],
    ids=["name", "port", "store", "ha", "vip"],
)
def test_two_brokers_need_places_of_their_own(same: dict[str, str], text: str, tmp_path: Path):
    said = CliRunner().invoke(broker_startup.app, files(tmp_path, **same))

    assert said.exit_code == 1
    assert text in said.stderr


def test_two_brokers_on_two_addresses_may_have_the_same_ports(tmp_path: Path):
    first, second = (load_broker_settings(path) for path in files(tmp_path, listenPort="10911")[1::2])
    other = second.transport.model_copy(update={"bind_address": "127.0.0.2"})
    one = first.transport.model_copy(update={"bind_address": "127.0.0.1"})

    broker_startup._check_apart([replace(first, transport=one), replace(second, transport=other)])
    with pytest.raises(ConfigError, match="the same listenPort"):
        broker_startup._check_apart([first, replace(second, transport=other)])


def test_settings_of_several_brokers_are_printed_one_after_the_other(tmp_path: Path):
    lines = CliRunner().invoke(broker_startup.app, [*files(tmp_path), "-p"]).stdout.splitlines()

    assert [line for line in lines if line.startswith("brokerName=")] == ["brokerName=a", "brokerName=b"]


@pytest.mark.parametrize("options", [[], ["--proxy"]])
def test_the_option_for_sdks_is_a_setting_of_each_broker(tmp_path: Path, options: list[str]):
    printed = CliRunner().invoke(broker_startup.app, [*files(tmp_path), *options, "-p"]).stdout.splitlines()

    assert printed.count("grpcServerEnable=true") == (2 if options else 0)


def test_brokers_of_several_files_get_the_option_for_sdks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[tuple[bool, Sequence[str]]] = []

    def run_many(brokers: list[BrokerSettings], options: Sequence[str]) -> None:
        started.extend((each.broker.grpc_server_enable, options) for each in brokers)

    monkeypatch.setattr(broker_startup, "_run_many", run_many)
    said = CliRunner().invoke(broker_startup.app, [*files(tmp_path), "-n", "127.0.0.1:9876", "--proxy"])

    assert said.exit_code == 0
    assert started == [(True, ("-n", "127.0.0.1:9876", "--proxy"))] * 2


@pytest.mark.long
def test_a_broker_with_the_option_serves_sdks(tmp_path: Path):
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from tests.support.grpc_calls import send_once

    servers, port = OurServers(tmp_path), free_ports()
    try:
        namesrv = servers.namesrv()
        settings = {"grpcServerPort": port}
        broker = servers.launch_broker(namesrv.address, None, settings, arguments=("--proxy",))
        wait_serving(broker, namesrv.address)
        make_topic(broker.address, namesrv.address, "Orders")
        assert send_once(f"127.0.0.1:{port}", "Orders", b"1") == OK
        assert servers.errors() == []
    finally:
        servers.close()
