"""Each case without Spark gives all messages of a mixed store, or those of its time range."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.analytics import GROWING, PLAIN, SPARK, made
from bench.analytics_cases import CASES, one_percent
from bench.analytics_spark import CASES as SPARK_CASES
from bench.harness import application
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows

ROOT = Path(__file__).resolve().parents[3]
COUNT = 3_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cases") / "store"
    MixedStore(root, COUNT, mapped_file_size_commit_log=1 << 18).make()
    return root


def test_all_cases_have_their_place_in_the_run():
    assert set(PLAIN) == set(CASES)
    assert set(SPARK) == set(SPARK_CASES)
    assert set(GROWING) <= {*PLAIN, *SPARK}


@pytest.mark.parametrize("name", sorted(set(CASES) - {"read", "time_1pct"}))
def test_a_case_goes_through_all_messages(store: Path, name: str):
    assert CASES[name](store)() == COUNT


def test_a_hundredth_of_the_time_is_what_a_plain_loop_finds_in_it(store: Path):
    since, until = one_percent(store)
    wanted = [row for row in slow_rows(store / "commitlog") if since <= row["store_timestamp"] < until]
    assert CASES["time_1pct"](store)() == len(wanted) > 0


def test_a_case_runs_as_a_process(store: Path):
    command = [sys.executable, "-P", "-m", "bench.analytics_cases", "read", str(store)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert set(json.loads(done.stdout)) == {"name", "messages", "wall", "cpu", "peak"}


def test_a_store_that_is_kept_is_used_again(tmp_path: Path):
    first = made(tmp_path, 0, 2_000)
    assert (first.messages, first.gib) == (2_000, 0)
    changed = (first.root / "commitlog" / ("0" * 20)).stat().st_mtime_ns
    assert made(tmp_path, 0, 2_000) == first
    assert (first.root / "commitlog" / ("0" * 20)).stat().st_mtime_ns == changed


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--gib", "x"], ["--cores", "0"]])
def test_wrong_options_are_rejected(arguments: list[str]):
    assert CliRunner().invoke(application("analytics"), arguments).exit_code == 2
