"""The command mqnamesrv as a process: what it prints, how it ends."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-P", "-m", "rocketbroker.app.namesrv_startup"]
TIMEOUT_S = 60.0


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(home)}


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@contextmanager
def started(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], "queue.Queue[str]"]]:
    """Run the command; gives the process and the lines of its stdout as they come."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    stdout = process.stdout
    assert stdout is not None
    reader = threading.Thread(target=_put_lines, args=(stdout, lines), daemon=True)
    reader.start()
    try:
        yield process, lines
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)
        stdout.close()
        assert process.stderr is not None
        process.stderr.close()


def _put_lines(stream: IO[str], lines: "queue.Queue[str]") -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


def config(folder: Path, **settings: object) -> str:
    path = folder / "namesrv.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_the_boot_line_serves_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    path = config(tmp_path, listenPort=0, bindAddress="127.0.0.1")
    with started(tmp_path, "-c", path, "-n", "192.0.2.1:9876") as (process, lines):
        assert lines.get(timeout=TIMEOUT_S) == f"load config properties file OK, {path}"
        boot = lines.get(timeout=TIMEOUT_S)
        head, _, port = boot.rpartition(":")
        assert head == "The Name Server boot success. serializeType=JSON, address 127.0.0.1"
        with socket.create_connection(("127.0.0.1", int(port)), TIMEOUT_S):
            process.send_signal(number)
            assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert "WARNING" not in process.stderr.read()


@pytest.mark.parametrize(
    ("mode", "said"),
    [("true", "protected mode is on: "), ("false", "protected mode is off: anyone who can reach 0.0.0.0 ")],
)
def test_its_first_line_names_the_admitted_peers(tmp_path: Path, mode: str, said: str) -> None:
    with started(tmp_path, "-c", config(tmp_path, listenPort=0, protectedMode=mode)) as (process, lines):
        lines.get(timeout=TIMEOUT_S)
        assert lines.get(timeout=TIMEOUT_S).startswith(
            "The Name Server boot success. serializeType=JSON, address 0.0.0.0:"
        )
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert said in process.stderr.readline()


def test_it_prints_all_settings_and_ends(tmp_path: Path) -> None:
    ended = run(tmp_path, "-p", "-c", config(tmp_path, enableTopicList="false"))
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert {"enableTopicList=false", "listenPort=9876", "scanNotActiveBrokerInterval=5000"} <= set(lines)


def test_it_names_a_port_in_use_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ended = run(tmp_path, "-c", config(tmp_path, listenPort=port, bindAddress="127.0.0.1"))
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if " INFO " not in line]
    assert line.startswith(f"mqnamesrv: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("enableTopicLists=true\n", "enableTopicList"),
        ("listenPort=many\n", "listenPort"),
        (None, "cannot read the settings file"),
    ],
)
def test_it_reports_wrong_settings_in_one_line(tmp_path: Path, text: str | None, named: str) -> None:
    path = tmp_path / "namesrv.properties"
    if text is not None:
        path.write_text(text)
    ended = run(tmp_path, "-c", str(path))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("mqnamesrv: ")
    assert named in ended.stderr


def test_it_names_a_wrong_log_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETBROKER_LOG_LEVEL", "chatty")
    ended = run(tmp_path, "-c", config(tmp_path, listenPort=0, bindAddress="127.0.0.1"))
    assert ended.returncode == 1
    assert "ROCKETBROKER_LOG_LEVEL" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_help_names_the_options(tmp_path: Path) -> None:
    ended = run(tmp_path, "-h")
    assert ended.returncode == 0
    for option in ("-c, --configFile", "-p, --printConfigItem", "-n, --namesrvAddr", "-h, --help"):
        assert option in ended.stdout
