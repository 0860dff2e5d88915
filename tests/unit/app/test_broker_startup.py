"""``mqbroker`` with several files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.app import broker_startup


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
    ],
    ids=["name", "port", "store"],
)
def test_two_brokers_need_places_of_their_own(same: dict[str, str], text: str, tmp_path: Path):
    said = CliRunner().invoke(broker_startup.app, files(tmp_path, **same))

    assert said.exit_code == 1
    assert text in said.stderr


def test_settings_of_several_brokers_are_printed_one_after_the_other(tmp_path: Path):
    lines = CliRunner().invoke(broker_startup.app, [*files(tmp_path), "-p"]).stdout.splitlines()

    assert [line for line in lines if line.startswith("brokerName=")] == ["brokerName=a", "brokerName=b"]
