"""Starts of a broker on a store, each of which is checked, and of servers to a first message."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import load, starts
from bench.harness import BenchError, application
from bench.stores import Messages, body_of, fill

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")


async def test_a_round_has_three_times():
    assert all(value > 0 for value in (await starts.embedded()).values())


@pytest.mark.long
def test_each_start_after_a_kill_is_told_and_nothing_is_left(tmp_path: Path):
    done = CliRunner().invoke(application("recovery"), ["--mib", "1", "--rounds", "1", "--dir", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert "store opened after an unclean stop" in done.output
    assert done.output.splitlines()[-1].startswith("| from the page cache | ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_log_that_ends_too_early_is_an_error(tmp_path: Path):
    made = fill(tmp_path / "store", 100, Messages(body_of(4096)))

    with pytest.raises(BenchError, match=r"ends at \d+ instead of \d+"):
        list(starts.starts(replace(made, end=made.end + 1), tmp_path, 1, cold=True))


@pytest.mark.long
def test_the_middle_of_a_big_store_is_drained_beside_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drained: list[tuple[str, list[int], int]] = []

    def drain(root: Path, _home: Path, _topic: str, _group: str, offsets: list[int], count: int) -> float:
        drained.append((root.name, offsets, count))
        return 100.0

    monkeypatch.setattr(starts, "drain_store", drain)
    monkeypatch.setattr(starts, "prepare", lambda: None)
    arguments = ["--messages", "8000", "--pull", "800", "--rounds", "1", "--java", "--dir", str(tmp_path)]

    done = CliRunner().invoke(application("big_store"), arguments)

    assert done.exit_code == 0, done.output
    assert drained == [("store", [450] * 8, 800), ("alone", [0] * 8, 800)]
    assert "| from the disk | " in done.output


@pytest.mark.java
def test_apaches_consumer_drains_a_store_from_where_it_is_said(tmp_path: Path):
    made = fill(tmp_path / "store", 1000, starts.BIG)
    load.prepare()

    assert load.drain_store(made.root, tmp_path, "Big", "bench_drain", [50] * 8, 500) > 0
