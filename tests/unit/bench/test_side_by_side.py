"""Options are checked before anything starts; rounds alternate; the exit status is true."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import load, side_by_side
from bench.harness import application
from bench.load import Outcome
from bench.servers import Running, Side

GOOD = Outcome(rate=100.0, p50=1.0, p99=2.0, done=50)


class Bench:
    """The command over servers and loads that are made up; ``calls`` has what was run."""

    def __init__(self, home: Path, outcomes: dict[str, Outcome]) -> None:
        self.home = home
        self.outcomes = outcomes
        self.calls: list[list[str]] = []
        self.started: list[str] = []
        self.properties: list[str] = []

    @contextmanager
    def running(self, side: Side, folder: Path | None, properties: list[str]) -> Iterator[Running]:
        self.started.append(side.name)
        self.properties = properties
        yield Running("127.0.0.1:9", os.getpid(), 0.5, self.home)

    def run_load(self, arguments: list[str], home: Path, limit: float) -> Outcome:
        self.calls.append(arguments)
        return self.outcomes.get(arguments[2], GOOD)

    def invoke(self, *arguments: str) -> Any:
        return CliRunner().invoke(application("side_by_side"), arguments)


@pytest.fixture
def outcomes() -> dict[str, Outcome]:
    return {}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Outcome]) -> Bench:
    made = Bench(tmp_path, outcomes)
    monkeypatch.setattr(load, "run_load", made.run_load)
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(side_by_side, "running", made.running)
    monkeypatch.setattr(side_by_side, "missing_tools", lambda: None)
    monkeypatch.setattr(side_by_side, "heading", lambda **_: {"commit": "abc"})
    monkeypatch.setattr(side_by_side, "java_side", lambda heap: Side("java", [heap], []))
    return made


def test_sides_alternate_and_begin_in_turn(bench: Bench):
    done = bench.invoke("--rounds", "2", "--only", "sync1", "--warm", "0")

    assert done.exit_code == 0, done.output
    assert bench.started == ["java", "ours", "ours", "java"]
    assert "| sync1 | rate | 100.00 | 100.00 | 1.00 |" in done.output


def test_each_side_is_warmed_up_before_its_loads(bench: Bench):
    bench.invoke("--rounds", "1", "--ours-only", "--seconds", "9", "--warm", "4", "--only", "sync1")

    assert [call[2:] for call in bench.calls] == [
        ["WarmUp", "64", "128", "4", "sync"],
        ["WarmUp", "8", "128", "4", "async"],
        ["WarmUp", "bench_warm", "50", "60"],
        ["WarmUpEndToEnd", "200", "4"],
        ["Sync1", "1", "128", "9", "sync"],
    ]


def test_a_drain_waits_for_what_was_sent(bench: Bench):
    bench.invoke("--rounds", "1", "--java-only", "--warm", "0", "--only", "drain")

    assert bench.started == ["java"]
    assert bench.calls[-1] == ["drain", "127.0.0.1:9", "Sync64", "bench_drain", "50", "60"]


def test_filters_are_switched_on_where_they_are_measured(bench: Bench):
    bench.invoke("--rounds", "1", "--ours-only", "--warm", "0", "--only", "sql92", "--set", "a=1")

    assert [call[2] for call in bench.calls] == ["Numbered", "Numbered"]
    assert bench.calls[-1][4] == "50", "as many as were sent"
    assert bench.properties == ["a=1", "enablePropertyFilter=true"]


def test_properties_go_to_the_broker_and_figures_to_the_file(bench: Bench, tmp_path: Path):
    file = tmp_path / "out.json"

    done = bench.invoke(
        "--rounds", "1", "--ours-only", "--warm", "0", "--only", "sync1", "--set", "a=1", "--set", "b=",
        "--json", str(file),
    )  # fmt: skip

    assert done.exit_code == 0, done.output
    assert bench.properties == ["a=1", "b="]
    told = json.loads(file.read_text())
    assert [row["scenario"] for row in told["rows"]] == ["start", "sync1"]
    assert told["rows"][0]["start"] == 0.5


def test_sync_flush_is_shown_beside_the_speed_of_the_disk(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(side_by_side, "_PROBE_SECONDS", 0)
    file = tmp_path / "out.json"

    done = bench.invoke("--rounds", "1", "--warm", "0", "--flush", "SYNC_FLUSH", "--json", str(file))

    assert done.exit_code == 0, done.output
    assert bench.properties == ["flushDiskType=SYNC_FLUSH"]
    assert [call[2] for call in bench.calls] == ["Sync64", "Sync1"] * 2
    assert done.output.count("bare fdatasync: ") == 2
    assert {"disk before", "disk after"} < json.loads(file.read_text())["run"].keys()


@pytest.mark.parametrize("where", ["Sync1", "WarmUp"])
def test_a_failed_send_ends_with_status_one(bench: Bench, outcomes: dict[str, Outcome], where: str):
    outcomes[where] = Outcome(rate=1.0, p50=1.0, p99=1.0, done=9, failed=1, error="timeout")

    done = bench.invoke("--rounds", "1", "--ours-only", "--only", "sync1")

    assert done.exit_code == 1
    assert "1 sends failed, 9 did not: timeout" in done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "nothing"], "unknown scenario 'nothing'"),
        (["--set", "flushDiskType"], "is not of the form KEY=VALUE"),
        (["--java-only", "--ours-only"], "exclude each other"),
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "2"], "--seconds"),
    ],
)
def test_wrong_options_start_nothing(bench: Bench, arguments: list[str], told: str):
    done = bench.invoke(*arguments)

    assert done.exit_code == 2
    assert told in done.output
    assert bench.started == []


def test_missing_java_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(side_by_side, "missing_tools", lambda: "needs-jdk: javac not found")

    done = bench.invoke()

    assert done.exit_code == 1
    assert done.output == "side_by_side: needs-jdk: javac not found\n"
