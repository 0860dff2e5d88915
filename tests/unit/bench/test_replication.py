"""A slave of ours copies and dispatches the whole log; the figures are those of master and slave."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import load, replication, side_by_side
from bench.replication import added_latency
from bench.report import Line


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_slave_that_copied_all_is_measured_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(side_by_side, "missing_tools", lambda: None)
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(replication, "heading", lambda options: {"commit": "abc"})
    file = tmp_path / "out.json"
    (tmp_path / "stores").mkdir()
    options = ["--ours-only", "--only", "catch_up", "--mib", "8", "--dir", f"{tmp_path}/stores", "--json", str(file)]

    done = CliRunner().invoke(replication.app, options)

    assert done.exit_code == 0, done.output
    for figure in ("copied", "dispatched", "cpu_mib", "slave_cpu_mib", "slave_anon"):
        assert f"| catch_up | {figure} | - |" in done.output
    assert '"commit": "abc"' in file.read_text()
    assert list((tmp_path / "stores").iterdir()) == []


def test_an_unknown_part_is_rejected():
    done = CliRunner().invoke(replication.app, ["--only", "loads,drain"])

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
