"""Output and options of ``mqdev``."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.analytics.spark.local_session import JavaRuntimeError
from rocketbroker.app.launch import demo
from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.testing import mqdev

FULL = "the disk of /store/commitlog is 93.1 % full, above the limit of 90 % (diskSpaceWarningLevelRatio)"


@pytest.mark.parametrize("full", ["", FULL])
def test_a_disk_that_is_too_full_to_send_is_said(full: str, monkeypatch: pytest.MonkeyPatch):
    async def serve(_server: DevServer, booted: Callable[[], None]) -> None:
        booted()

    monkeypatch.setattr(mqdev, "serve", serve)
    monkeypatch.setattr(DevServer, "disk_full", full)

    lines = CliRunner().invoke(mqdev.app, []).stdout.splitlines()

    assert [line.split()[0] for line in lines[:4]] == ["ready", "namesrv", "broker", "store"]
    said = [
        f"  SENDS ARE REJECTED: {FULL}",
        " " * 22 + "free some space, or choose a folder on another disk with --store DIR",
    ]
    assert lines[4:] == [*(said if full else []), "Ctrl-C stops it."]


def test_the_ready_file_has_the_address_while_the_servers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready, seen = tmp_path / "ready.env", []
    ready.write_text("NAMESRV_ADDR=left.by.a.killed.one:1\n")

    async def serve(server: DevServer, booted: Callable[[], None]) -> None:
        assert not ready.exists()
        server.namesrv_addr = "127.0.0.1:1234"
        booted()
        seen.append(ready.read_text())
        assert stat.S_IMODE(ready.stat().st_mode) == 0o600  # with --acl it has secrets

    monkeypatch.setattr(mqdev, "serve", serve)
    assert CliRunner().invoke(mqdev.app, ["--ready-file", str(ready)]).exit_code == 0

    assert seen == ["NAMESRV_ADDR=127.0.0.1:1234\n"]
    assert list(tmp_path.iterdir()) == []


def test_a_ready_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def serve(_server: DevServer, booted: Callable[[], None]) -> None:
        booted()

    monkeypatch.setattr(mqdev, "serve", serve)
    said = CliRunner().invoke(mqdev.app, ["--ready-file", str(tmp_path / "none" / "ready")])

    assert (said.exit_code, said.stderr.startswith("mqdev: cannot write --ready-file")) == (1, True)


@pytest.mark.parametrize(
    ("options", "variable", "level"),
    [
        ([], "", "WARNING"),
        ([], "INFO", "INFO"),
        (["--set", "logLevel=DEBUG"], "", "DEBUG"),
        (["--set", "logLevel=debug"], "INFO", "DEBUG"),
    ],
)
def test_the_log_level_is_that_of_the_setting_or_of_the_environment(
    options: list[str], variable: str, level: str, monkeypatch: pytest.MonkeyPatch
):
    async def serve(_server: DevServer, booted: Callable[[], None]) -> None:
        booted()

    levels: list[str] = []
    monkeypatch.setattr(mqdev, "serve", serve)
    monkeypatch.setattr(mqdev, "set_up_logging", lambda name: levels.append(name.upper()))
    said = CliRunner(env={"ROCKETBROKER_LOG_LEVEL": variable}).invoke(mqdev.app, options)

    assert (said.exit_code, levels) == (0, [level])


def test_a_store_that_is_kept_and_not_kept_is_rejected(tmp_path: Path):
    said = CliRunner().invoke(mqdev.app, ["--ephemeral", "--store", str(tmp_path)])

    assert (said.exit_code, "--ephemeral keeps nothing" in said.stderr) == (2, True)


@pytest.mark.parametrize(
    ("option", "text"),
    [("--host", "is not an IP address"), ("--advertise", "is neither an IP address nor a known host")],
)
def test_a_name_that_is_no_address_is_rejected(option: str, text: str):
    said = CliRunner().invoke(mqdev.app, [option, "broker.invalid"])

    assert (said.exit_code, f"'broker.invalid' {text}" in said.stderr) == (2, True)


@pytest.mark.parametrize("missing", ["pyspark", "Java"])
def test_the_demo_without_spark_fails_before_it_sends(missing: str, monkeypatch: pytest.MonkeyPatch):
    def no_java() -> Path:
        raise JavaRuntimeError("PySpark needs Java 17 or later: none is installed.")

    if missing == "pyspark":
        monkeypatch.setattr(demo, "find_spec", lambda _name: None)
    monkeypatch.setattr(demo, "ensure_java_home", no_java)
    monkeypatch.setattr(demo, "run", lambda _main: pytest.fail("it started"))
    said = CliRunner().invoke(mqdev.app, ["--demo"])

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("mqdev: the demo counts with Spark")
    assert missing in said.stderr


def test_an_unknown_layout_is_named_with_those_that_there_are():
    before = dict(os.environ)
    said = CliRunner().invoke(mqdev.app, ["--layout", "3m"])

    assert os.environ == before
    assert said.exit_code == 1
    assert said.stderr == "mqdev: --layout 3m is unknown; give one of 2m-noslave, 2m-2s-async, 2m-2s-sync\n"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--set", "flushDiskType"], 2, "--set flushDiskType: give KEY=VALUE, such as flushDiskType=SYNC_FLUSH"),
        (["--set", "flushDiskTyp=SYNC_FLUSH"], 1, "did you mean flushDiskType"),
        (["--set", "maxMessageSize=many"], 1, "maxMessageSize=many"),
        (["--set", "brokerName=b"], 1, "brokerName is set by the server itself"),
        (["--control-port", "0"], 2, "give it with --ephemeral"),
        (["--grpc", "--layout", "2m-noslave"], 2, "run bin/mqproxy -n NAMESRV_ADDR in front of a --layout"),
        (["--control-port", "0", "--ephemeral", "--demo"], 2, "give it with --ephemeral, without --layout or --demo"),
    ],
)
def test_a_wrong_option_is_explained(options: list[str], code: int, text: str):
    said = CliRunner(env={"COLUMNS": "200"}).invoke(mqdev.app, ["--port", "0", "--broker-port", "0", *options])

    assert said.exit_code == code
    assert text in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    "options", [["--demo"], ["--store", "s"], ["--layout", "2m-noslave"], ["--ephemeral", "--control-port", "0"]]
)
def test_users_for_a_run_go_with_no_option_that_outlives_it(options: list[str]):
    said = CliRunner().invoke(mqdev.app, ["--acl", *options])

    assert said.exit_code == 2
    assert "--acl makes users for one run" in said.stderr
