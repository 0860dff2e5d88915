"""``mqbroker`` with several files."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.app import broker_startup
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import ConfigError


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
