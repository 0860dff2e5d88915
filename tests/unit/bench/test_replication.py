"""A slave of ours copies and dispatches the whole log; the figures are those of master and slave."""

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bench import load, replication, side_by_side
from bench.harness import application
from bench.replication import Progress, Sample, added_latency
from bench.servers import Server
from bench.side_by_side import Line


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_slave_that_copied_all_is_measured_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(side_by_side, "missing_tools", lambda: None)
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(replication, "heading", lambda **_: {"commit": "abc"})
    file = tmp_path / "out.json"
    (tmp_path / "stores").mkdir()
    options = ["--ours-only", "--only", "catch_up", "--mib", "8", "--dir", f"{tmp_path}/stores", "--json", str(file)]

    done = CliRunner().invoke(application("replication"), options)

    assert done.exit_code == 0, done.output
    for figure in ("copied", "dispatched", "cpu_mib", "slave_cpu_mib", "slave_anon"):
        assert f"| catch_up | {figure} | - |" in done.output
    assert '"commit": "abc"' in file.read_text()
    assert list((tmp_path / "stores").iterdir()) == []


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
    monkeypatch.setattr(replication, "progress_of", lambda _: next(left))
    times = SimpleNamespace(perf_counter=lambda: float(next(clock)), monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(replication, "time", times)
    monkeypatch.setattr(replication, "cpu_seconds", lambda _: 7.0)
    monkeypatch.setattr(replication, "anonymous_mib", lambda _: 5.0)
    server = Server("127.0.0.1:1", 1, 0.0, 0.0, Path())

    figures = replication.catch_up(4 << 20, server, 3.0, server, Sample(0.0, Progress(0, 0), 0.0))

    assert figures["copied"] == mib / (copied - begun)
    assert figures["dispatched"] == mib / (len(polls) - begun)
    assert figures["cpu_mib"] == 4.0 / mib * 1e3
    assert figures["slave_cpu_mib"] == (0.0 if begun else 7.0) / mib * 1e3
    assert figures["slave_anon"] == 5.0


def test_an_unknown_part_is_rejected():
    done = CliRunner().invoke(application("replication"), ["--only", "loads,drain"])

    assert done.exit_code == 2
    assert "unknown part 'drain'" in done.output


def test_the_latency_of_replication_is_that_of_the_pair_minus_that_of_the_master_alone():
    lines = [
        Line("alone_sync64", "p50", 2.0, 1.0),
        Line("alone_sync1", "p50", None, 0.25),
        Line("sync64", "p50", 5.0, 1.5),
        Line("sync1", "p50", None, 0.5),
        Line("sync1", "rate", 7.0, 9.0),
    ]

    assert list(added_latency(lines)) == [
        "replication adds to p50 of sync64: Apache 3.00 ms, ours 0.50 ms",
        "replication adds to p50 of sync1: Apache -, ours 0.25 ms",
    ]
