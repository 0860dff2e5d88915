"""Files are made old before the broker opens them; sends are measured until the last file is gone, or refused."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import raw_load
from bench.cleaning import Latencies, expire, generator_of, table
from bench.harness import BenchError, application

FILE_SIZE = 16 << 20
HOUR = 3600
linux = pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")


def test_the_first_files_are_full_and_old(tmp_path: Path):
    made = generator_of(tmp_path, 2, FILE_SIZE)
    made.write()

    old = expire(made, 2)

    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) == 3
    assert old == files[:2]
    ages = [files[2].stat().st_mtime - file.stat().st_mtime for file in files]
    assert [age > 72 * HOUR for age in ages] == [True, True, False]


def test_the_table_has_a_line_for_each_time():
    rows = list(table({"before": Latencies(2000, 1.0, 2.5, 30.0)}))

    assert rows[2] == "| before | 2,000 | 1.00 | 2.50 | 30.00 |"


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> Any:
    monkeypatch.setattr(raw_load, "ask", ask)
    arguments = ["--segments", "2", "--mib", "16", "--seconds", "1", "--rate", "200", "--dir", str(tmp_path)]
    return CliRunner().invoke(application("cleaning"), arguments)


@linux
def test_sends_are_measured_until_the_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def remove(address: str, code: int) -> None:
        for file in sorted(tmp_path.glob("*/store/commitlog/*"))[:2]:
            file.unlink()

    done = run(tmp_path, monkeypatch, remove)

    assert done.exit_code == 0, done.output
    assert "2 files were gone" in done.output
    assert [line.split("|")[1].strip() for line in done.output.splitlines()[-3:]] == [
        "before",
        "while files are removed",
        "after",
    ]
    assert list(tmp_path.iterdir()) == []


@linux
def test_a_rejection_by_the_broker_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(address: str, code: int) -> None:
        raise BenchError("the broker answered 3: not supported")

    done = run(tmp_path, monkeypatch, refuse)

    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "cleaning: the broker answered 3: not supported"
