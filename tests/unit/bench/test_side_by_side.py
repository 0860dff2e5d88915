"""Options are checked before anything starts; rounds alternate; the exit status is true; a slave is measured."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import harness, load, side_by_side
from bench.harness import Report, Row, application
from bench.load import Outcome
from bench.servers import Running, Server, Side
from bench.side_by_side import Progress, Sample, added_latency

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
        yield Running("127.0.0.1:9", Server("127.0.0.1:8", os.getpid(), 0.5, 0.0, Path()), self.home)

    def run_load(self, arguments: list[str], home: Path, limit: float) -> Outcome:
        self.calls.append(arguments)
        return self.outcomes.get(arguments[2], GOOD)

    def invoke(self, *arguments: str, command: str = "side_by_side") -> Any:
        return CliRunner().invoke(application(command), ["--rounds", "1", *arguments])


@pytest.fixture
def outcomes() -> dict[str, Outcome]:
    return {}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Outcome]) -> Bench:
    made = Bench(tmp_path, outcomes)
    monkeypatch.setattr(load, "run_load", made.run_load)
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(side_by_side, "running", made.running)
    monkeypatch.setattr(harness, "heading", lambda **_: {"commit": "abc"})
    monkeypatch.setattr(side_by_side, "java_side", lambda heap: Side("java", [heap], []))
    return made


def test_sides_alternate_and_begin_in_turn(bench: Bench):
    done = bench.invoke("--rounds", "2", "--only", "sync1", "--warm", "0")

    assert done.exit_code == 0, done.output
    assert bench.started == ["java", "ours", "ours", "java"]
    assert "| sync1 | rate | 100.00 | 100.00 | 1.00 |" in done.output


def test_each_side_is_warmed_up_before_its_loads(bench: Bench):
    bench.invoke("--ours-only", "--seconds", "9", "--warm", "4", "--only", "sync1")

    assert [call[2:] for call in bench.calls] == [
        ["WarmUp", "64", "128", "4", "sync"],
        ["WarmUp", "8", "128", "4", "async"],
        ["WarmUp", "bench_warm", "50", "60"],
        ["WarmUpEndToEnd", "200", "4"],
        ["Sync1", "1", "128", "9", "sync"],
    ]


def test_a_drain_waits_for_what_was_sent(bench: Bench):
    bench.invoke("--java-only", "--warm", "0", "--only", "drain")

    assert bench.started == ["java"]
    assert bench.calls[-1] == ["drain", "127.0.0.1:9", "Sync64", "bench_drain", "50", "60"]


def test_pops_are_measured_after_loads_of_their_own_kind(bench: Bench):
    done = bench.invoke("--ours-only", "--seconds", "9", "--warm", "4", "--only", "pop32", command="pop")

    assert done.exit_code == 0, done.output
    assert [(call[0], call[2]) for call in bench.calls] == [
        ("send", "WarmUp"),
        ("pop", "WarmUp"),
        ("pop", "WarmUp"),
        ("deliver", "WarmUpEndToEnd"),
        ("send", "Pop"),
        ("pop", "Pop"),
    ]
    assert bench.calls[-1][3:] == ["bench_pop32", "50", "60", "8", "32"]
    assert "| pop32 | rate | - | 100.00 | - |" in done.output


def test_filters_are_switched_on_where_they_are_measured(bench: Bench):
    bench.invoke("--ours-only", "--warm", "0", "--only", "sql92", "--set", "a=1")

    assert [call[2] for call in bench.calls] == ["Numbered", "Numbered"]
    assert bench.calls[-1][4] == "50", "as many as were sent"
    assert bench.properties == ["a=1", "enablePropertyFilter=true"]


def test_sync_flush_is_shown_beside_the_speed_of_the_disk(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(side_by_side, "_PROBE_SECONDS", 0)
    file = tmp_path / "out.json"

    done = bench.invoke("--warm", "0", "--flush", "SYNC_FLUSH", "--set", "b=", "--json", str(file))

    assert done.exit_code == 0, done.output
    assert bench.properties == ["b=", "flushDiskType=SYNC_FLUSH"]
    assert [call[2] for call in bench.calls] == ["Sync64", "Sync1"] * 2
    assert done.output.count("bare fdatasync: ") == 2
    told = json.loads(file.read_text())
    assert {"disk before", "disk after"} < told["run"].keys()
    assert [row["load"] for row in told["rows"]] == ["start", "sync64", "sync1"] * 2


@pytest.mark.parametrize("where", ["Sync1", "WarmUp"])
def test_a_failed_send_ends_with_status_one(bench: Bench, outcomes: dict[str, Outcome], where: str):
    outcomes[where] = Outcome(rate=1.0, p50=1.0, p99=1.0, done=9, failed=1, error="timeout")

    done = bench.invoke("--ours-only", "--only", "sync1")

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


def test_missing_java_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "missing_tools", lambda: "needs-jdk: javac not found")

    done = CliRunner().invoke(application("side_by_side"), [])

    assert done.exit_code == 1
    assert done.output == "side_by_side: needs-jdk: javac not found\n"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_slave_that_copied_all_is_measured_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(harness, "heading", lambda **_: {"commit": "abc"})
    options = ["--ours-only", "--only", "catch_up", "--mib", "8", "--dir", str(tmp_path)]

    done = CliRunner().invoke(application("replication"), options)

    assert done.exit_code == 0, done.output
    for figure in ("copied", "dispatched", "cpu_mib", "slave_cpu_mib", "slave_anon"):
        assert f"| catch_up | {figure} | - |" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ends", "begun", "copied", "mib"),
    [
        ([4], 0, 1, 4),
        ([0, 0, 4], 2, 3, 4),
        ([0, 1, 3, 4], 2, 4, 3),
        ([2, 4], 1, 2, 2),
    ],
    ids=["before it is asked", "between two polls", "in many polls", "partly before it is asked"],
)
def test_a_slave_is_measured_however_fast_it_copies(
    monkeypatch: pytest.MonkeyPatch, ends: Sequence[int], begun: int, copied: int, mib: int
):
    # One second and one CPU second for each poll; the last part is dispatched a poll later.
    polls = [Progress(end << 20, 0) for end in ends] + [Progress(4 << 20, 4 << 20)]
    left, clock = iter(polls), count(1)
    monkeypatch.setattr(side_by_side, "progress_of", lambda _: next(left))
    times = SimpleNamespace(perf_counter=lambda: float(next(clock)), monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(side_by_side, "time", times)
    monkeypatch.setattr(side_by_side, "cpu_seconds", lambda _: 7.0)
    monkeypatch.setattr(side_by_side, "anonymous_mib", lambda _: 5.0)
    server = Server("127.0.0.1:1", 1, 0.0, 0.0, Path())

    figures = side_by_side.catch_up(4 << 20, server, 3.0, server, Sample(0.0, Progress(0, 0), 0.0))

    assert figures["copied"] == mib / (copied - begun)
    assert figures["dispatched"] == mib / (len(polls) - begun)
    assert figures["cpu_mib"] == 4.0 / mib * 1e3
    assert figures["slave_cpu_mib"] == (0.0 if begun else 7.0) / mib * 1e3
    assert figures["slave_anon"] == 5.0


def test_the_latency_of_replication_is_that_of_the_pair_minus_that_of_the_master_alone(monkeypatch):
    monkeypatch.setattr(harness, "heading", lambda **_: {})
    report = Report(1)
    for side, name, p50 in (("java", "sync64", 5.0), ("java", "alone_sync64", 2.0), ("ours", "sync1", 0.5)):
        report.add(Row(1, side, name, {"p50": p50}))
    report.add(Row(1, "ours", "alone_sync1", {"p50": 0.25}))

    assert list(added_latency(report)) == [
        "replication adds to p50 of sync64, java: 3.00 ms",
        "replication adds to p50 of sync1, ours: 0.25 ms",
    ]
