"""Clusters by name: the file, and which of the ways to name a cluster counts."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.named_clusters import Chosen, chosen_cluster, config_file, read_clusters

TEXT = """
default = "dev"
[clusters.dev]
namesrvAddr = "127.0.0.1:1"
[clusters.prod]
namesrvAddr = "127.0.0.1:2;127.0.0.1:3"
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a file of clusters."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = config_file(environment)
    path.parent.mkdir()
    path.write_text(TEXT)
    return environment


def test_the_option_then_the_cluster_then_the_environment_then_the_default(home: dict[str, str]):
    set_too = home | {"NAMESRV_ADDR": " e:9 "}

    assert chosen_cluster(" n:9 ", Chosen(), set_too).namesrv_addr == "n:9"
    assert chosen_cluster(None, Chosen("prod"), set_too).namesrv_addr == "127.0.0.1:2;127.0.0.1:3"
    assert chosen_cluster(None, Chosen(), set_too).namesrv_addr == "e:9"
    assert chosen_cluster(None, Chosen(), home).namesrv_addr == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("option", "chosen", "text"),
    [
        ("n:9", Chosen("prod"), "-n n:9 and --cluster prod both name a cluster"),
        (None, Chosen("live"), "cluster 'live' is not in .*: it has dev, prod; add"),
        (None, Chosen("prod", Path("/no/such")), "/no/such does not exist"),
        (None, Chosen(None, Path("/no/such")), "/no/such cannot be read: No such file"),
        (" ", Chosen(), "no name server given"),
        ("n:9", Chosen(None, Path("mine.toml")), "-n n:9 leaves nothing to read in --config mine.toml"),
    ],
)
def test_what_contradicts_or_is_not_there_is_named(home: dict[str, str], option: Any, chosen: Chosen, text: str):
    with pytest.raises(typer.BadParameter, match=text):
        chosen_cluster(option, chosen, home)


def test_brokers_that_doctor_misses_are_names(home: dict[str, str]):
    path = config_file(home)
    path.write_text(f'{TEXT}brokers = ["broker-a", "broker-b"]')
    assert chosen_cluster(None, Chosen("prod"), home).brokers == ("broker-a", "broker-b")
    assert chosen_cluster(None, Chosen("dev"), home).brokers == ()
    path.write_text(f'{TEXT}brokers = "broker-a"')
    with pytest.raises(typer.BadParameter, match=r"Expected `array`, got `str` - at `.*brokers`"):
        chosen_cluster(None, Chosen("prod"), home)


def test_a_file_that_is_given_comes_before_the_environment(tmp_path: Path, home: dict[str, str]):
    set_too = home | {"NAMESRV_ADDR": "e:9"}
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    assert chosen_cluster(None, Chosen(None, path), set_too).namesrv_addr == "127.0.0.1:1"

    path.write_text("[clusters.prod]\nnamesrvAddr = 'h:1'")
    with pytest.raises(typer.BadParameter, match=r"mine\.toml has no default cluster; use --cluster NAME, of: prod"):
        chosen_cluster(None, Chosen(None, path), set_too)


def test_without_a_file_there_is_no_default(tmp_path: Path):
    with pytest.raises(typer.BadParameter, match="no name server given; use -n HOST:PORT, set NAMESRV_ADDR, or name"):
        chosen_cluster(None, Chosen(), {"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[clusters.dev", "Expected ']'"),
        ("[clusters.dev]\nnamesrvAdr = 'h:1'", "unknown field `namesrvAdr` - at `.*clusters"),
        ("[clusters.dev]", "missing required field `namesrvAddr`"),
        ("[clusters.dev]\nnamesrvAddr = ''", "length >= 1"),
        ("[clusters.dev]\nnamesrvAddr = 9876", "got `int`"),
        ("clusters = 'dev'", "got `str`"),
        ("default = 'dev'", "cluster 'dev' is not in .*: it names no cluster"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, text: str | bytes, fault: str):
    path = tmp_path / "mqadmin.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(typer.BadParameter, match=fault) as raised:
        read_clusters(path)
    assert str(path) in str(raised.value)


def test_the_file_is_in_the_home_folder_unless_the_variable_is_absolute():
    expected = Path.home() / ".config/rocketbroker/mqadmin.toml"

    assert config_file({}) == config_file({"XDG_CONFIG_HOME": "relative"}) == expected


def test_the_command_takes_the_cluster_before_the_sub_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)

    done = CliRunner().invoke(app, ["--config", str(path), "--cluster", "prod", "topicList"])
    assert (done.exit_code, "connect to 127.0.0.1:2 failed" in done.stderr) == (1, True)
    done = CliRunner().invoke(app, ["--config", str(path), "topicList"])
    assert (done.exit_code, "connect to 127.0.0.1:1 failed" in done.stderr) == (1, True)
    done = CliRunner().invoke(app, ["--config", str(path), "--cluster", "live", "topicList"])
    assert (done.exit_code, "it has dev, prod" in " ".join(done.stderr.split())) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_of_clusters_are_completed(home: dict[str, str], shell: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    words = {"COMP_WORDS": "mqadmin --cluster p", "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": "mqadmin --cluster p"}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = os.environ | words | action | {"_MQADMIN_COMPLETE": f"complete_{shell}"}

    done = CliRunner().invoke(app, prog_name="mqadmin", env=environment)

    assert "prod" in done.stdout
    assert "dev" not in done.stdout
