"""Files are made old before the broker opens them; sends are measured until the last file is gone, or refused."""

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import servers
from bench.cleaning import SteadySender, expire
from bench.harness import BenchError, application
from tests.support.raw_client import RawClient, raw_frame

HOUR = 3600
linux = pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")


def test_the_first_files_are_made_old(tmp_path: Path):
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()

    assert expire(tmp_path, 2) == files[:2]
    ages = [files[2].stat().st_mtime - file.stat().st_mtime for file in files]
    assert [age > 72 * HOUR for age in ages] == [True, True, False]


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> Any:
    monkeypatch.setattr(servers, "ask", ask)
    arguments = ["--segments", "2", "--mib", "16", "--seconds", "1", "--rate", "200", "--dir", str(tmp_path)]
    return CliRunner().invoke(application("cleaning"), arguments)


@pytest.mark.soak
@linux
def test_sends_are_measured_until_the_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def remove(address: str, code: int) -> None:
        files = sorted(tmp_path.glob("*/store/commitlog/*"))
        assert len(files) > 2
        for file in files[:2]:
            file.unlink()

    done = run(tmp_path, monkeypatch, remove)

    assert done.exit_code == 0, done.output
    assert "2 files were gone" in done.output
    names = [line.split("|")[1].strip() for line in done.output.splitlines()[-3:]]
    assert names == ["before", "while files are removed", "after"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@linux
def test_a_rejection_by_the_broker_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(address: str, code: int) -> None:
        raise BenchError("the broker answered 3: not supported")

    done = run(tmp_path, monkeypatch, refuse)

    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "cleaning: the broker answered 3: not supported"


def answered(connection: socket.socket, code: int, most: int, topics: list[str]) -> None:
    """Answer sends, ``most`` at most, and close."""
    with suppress(OSError), RawClient(connection) as client:
        while len(topics) < most and (request := client.read()) is not None:
            topics.append(request.fields["b"])
            client.send(raw_frame({"code": code, "flag": 1, "opaque": request.header["opaque"], "remark": "why"}))


def sent(code: int = 0, most: int = 1 << 30, until: int = 50) -> tuple[list[float], list[float], list[str]]:
    ours, theirs = socket.socketpair()
    topics: list[str] = []
    answering = threading.Thread(target=answered, args=(theirs, code, most, topics))
    answering.start()
    try:
        with SteadySender(ours, 10, 10_000) as sender:
            first = sender.run(lambda: len(topics) > 20)
            return first, sender.run(lambda: len(topics) > until), topics
    finally:
        answering.join()


def test_each_send_has_its_answer():
    first, second, topics = sent()

    assert len(first) > 20
    assert len(first) + len(second) == len(topics)
    assert set(topics) == {"Cleaning"}
    assert all(latency >= 0 for latency in first + second)


@pytest.mark.parametrize(
    ("code", "most", "text"),
    [(14, 1 << 30, "the broker answered 14: why"), (0, 30, "the broker closed the connection")],
)
def test_a_refusal_or_a_lost_connection_ends_the_load(code: int, most: int, text: str):
    with pytest.raises(BenchError, match=text):
        sent(code, most)
