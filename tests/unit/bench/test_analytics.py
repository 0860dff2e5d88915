"""Each case gives all messages of a mixed store, or those of its time range; medians, ratios, and cores that follow."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.analytics import (
    GROWING,
    PB,
    PLAIN,
    SPARK,
    STAGED,
    TB,
    Measure,
    Rate,
    Store,
    cores_for,
    hosts_for,
    lines,
    made,
    markdown,
    rates,
    ratios,
    run_command,
    seconds_for,
    staging,
)  # fmt: skip
from bench.analytics_cases import CASES, POLLED_FILES, one_percent
from bench.analytics_live import STORED
from bench.analytics_spark import CASES as SPARK_CASES
from bench.harness import BenchError, application
from bench.pull_to_parquet import pull_to_parquet
from rocketbroker.client import Message, Producer
from rocketbroker.testing import RocketMQServer
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
    assert {*SPARK, *STAGED, *STORED} == set(SPARK_CASES)
    assert set(GROWING) <= {*PLAIN, *SPARK}


@pytest.mark.parametrize("name", sorted(set(CASES) - {"read", "time_1pct", "poll"}))
def test_a_case_goes_through_all_messages(store: Path, name: str):
    assert CASES[name](store)() == COUNT


@pytest.mark.long
def test_polls_have_no_messages(store: Path):
    assert CASES["poll"](store)() == 0
    files = list(Path(f"{store}-sparse", "commitlog").iterdir())
    assert len(files) == POLLED_FILES
    assert sum(file.stat().st_blocks for file in files) * 512 < 1 << 20, "the files are sparse"


def test_a_hundredth_of_the_time_is_what_a_plain_loop_finds_in_it(store: Path):
    since, until = one_percent(store)
    wanted = [row for row in slow_rows(store / "commitlog") if since <= row["store_timestamp"] < until]
    assert CASES["time_1pct"](store)() == len(wanted) > 0


def test_a_case_runs_as_a_process(store: Path):
    command = [sys.executable, "-P", "-m", "bench.analytics_cases", "read", str(store)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert set(json.loads(done.stdout)) == {"name", "messages", "wall", "cpu", "peak"}


@pytest.mark.long
def test_a_command_on_a_store_is_timed_to_its_end_or_shows_its_output(store: Path, tmp_path: Path):
    measured = run_command(Store(store, 0, COUNT, 1), 1, "check")
    assert (measured.name, measured.messages) == ("check", COUNT)
    assert measured.cpu > 0
    assert measured.peak > 10
    with pytest.raises(BenchError, match="mqstore check ended with exit status"):
        run_command(Store(tmp_path, 0, 1, 1), 1, "check")


async def test_our_client_pulls_each_message_into_parquet():
    with RocketMQServer() as mq:
        async with Producer("PG", mq.namesrv_addr) as producer:
            for number in range(40):
                await producer.send(Message("Pulled", b"%d" % number))
        assert await asyncio.to_thread(pull_to_parquet, mq.namesrv_addr, "Pulled") == 40


@pytest.mark.long
def test_a_store_that_is_kept_is_used_again(tmp_path: Path):
    first = made(tmp_path, 0, 2_000)
    assert (first.messages, first.gib) == (2_000, 0)
    changed = (first.root / "commitlog" / ("0" * 20)).stat().st_mtime_ns
    assert made(tmp_path, 0, 2_000) == first
    assert (first.root / "commitlog" / ("0" * 20)).stat().st_mtime_ns == changed


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--gib", "x"], ["--cores", "0"]])
def test_wrong_options_are_rejected(arguments: list[str]):
    assert CliRunner().invoke(application("analytics"), arguments).exit_code == 2


def run(name: str, cpu: float, number: int = 1, gib: int = 1, cores: int = 0, wall: float = 1.0, peak: float = 100.0):
    return Measure(number, name, gib, cores, 1_000_000, 10**9, wall, cpu, peak)


def test_medians_are_over_the_rounds_and_the_peak_is_the_highest():
    rounds = [run("read", cpu, number, peak=cpu * 10) for number, cpu in enumerate((1.0, 9.0, 2.0), 1)]
    (line,) = lines(rounds)
    assert (line.cpu, line.cpu_ns, line.rate, line.peak) == (2.0, 2000.0, 1e9, 90.0)


def test_a_ratio_is_taken_on_one_store_and_with_the_most_cores():
    found = lines(
        [
            run("read", 1.0),
            run("headers", 1.4),
            run("headers_walk", 3.5),
            run("pruned", 2.0),
            run("spark_pruned", 9.0, cores=1),
            run("spark_pruned", 3.0, cores=2),
            run("read", 5.0, gib=2),
        ]
    )
    assert {(aim.of, gib): ratio for aim, gib, ratio in ratios(found)} == {
        ("headers", 1): 1.4,
        ("headers_walk", 1): 3.5,
        ("spark_pruned", 1): 1.5,
    }
    table = markdown(found)
    assert "| decode of headers to plain read | 1 | ≤ 1.5 | 1.40 | met |" in table
    assert "| the same with the boundary walk to plain read | 1 | ≤ 3 | 3.50 | not met |" in table
    assert "| read | 2 | - | 1,000,000 | 1.00 | 5.00 | 5000.0 | 1,000 | 100 |" in table


def test_the_start_of_a_session_has_no_figures_a_message():
    assert "| spark_start | 1 | 2 | - | 9.00 | 3.00 | - | - | - |" in markdown(
        lines([run("spark_start", 3.0, cores=2, wall=9.0)])
    )


def test_an_export_pays_off_once_its_time_is_saved():
    cases = [
        run("spark_pruned", 4.0, cores=1, wall=5.0),
        run("spark_parquet_pruned", 5.0, cores=1, wall=1.0),
        run("spark_export", 20.0, cores=1, wall=40.0),
        run("spark_pruned", 9.0, cores=2),
    ]
    assert list(staging(cases)) == [["1", "1", "200,000", "1,000,000", "25,000", "10", "never"]]


def test_workers_are_compared_with_their_limit():
    assert "| peak of a worker, MiB | all | ≤ 1024 | 2000 | not met |" in markdown(
        lines([run("spark_full", 1, cores=2, peak=2000.0), run("full", 1, peak=9000.0)])
    )


def test_polls_and_commands_are_compared_with_their_limits():
    found = markdown(lines([run("poll", 2.0), run("traffic", 1, peak=900.0), run("audit", 1, peak=2000.0)]))
    assert "| CPU of a poll of a stream, ms | all | ≤ 10 | 20 | not met |" in found
    assert "| peak of a command that counts, MiB | all | ≤ 1024 | 900 | met |" in found
    assert "| poll | 1 | - | - | 1.00 | 2.00 | - | - | - |" in found


GIB = 1 << 30


def line(name: str, gib: int, cores: int, cpu: float, wall: float) -> dict[str, Any]:
    return {"name": name, "gib": gib, "cores": cores, "cpu": cpu, "wall": wall, "size": gib * GIB}


MEASURED = {
    "medians": [
        line("pruned", 1, 0, 1.0, 1.0),
        line("spark_traffic", 1, 1, 2.0, 2.2),
        line("spark_traffic", 1, 2, 2.0, 1.1),
        line("spark_traffic", 8, 2, 20.0, 11.0),
        line("full", 1, 0, 3.0, 3.0),
        line("spark_start", 1, 2, 6.0, 4.0),
    ]
}


def test_a_rate_is_that_of_the_largest_store_and_says_whose_time_it_is():
    (rate,) = rates(MEASURED["medians"])
    assert rate.job == "spark_traffic"
    assert 1 / rate.seconds_a_byte == pytest.approx(8 * GIB / 20)
    assert rate.decoder_share == pytest.approx(0.5)
    assert rate.growth == pytest.approx(1.25)
    assert rate.speed_up == pytest.approx(2.0)
    assert rate.cores == 2
    assert rate.busy == pytest.approx(20 / 11 / 2)


def test_cores_and_hosts_are_enough_and_not_one_too_many():
    rate = Rate("job", 1 / 100e6, 0.5, 1, 2, 2, 0.8)  # 100 MB/s and core
    assert cores_for(rate, TB, 10) == 17  # 10,000 core seconds in 600
    assert cores_for(rate, PB, 60) == 2778
    assert cores_for(rate, 1, 60) == 1
    assert hosts_for(TB, 10, 10) == 2  # 800 s of one host
    assert hosts_for(TB, 60, 10) == 1
    assert hosts_for(PB, 60, 10) == 223


def test_hosts_share_the_bytes_after_the_start_and_wait_for_cpu_or_network():
    rate = Rate("job", 1 / 100e6, 0.5, 1, 2, 2, 0.8)
    assert seconds_for(rate, 1, 5, 10) == pytest.approx(5 + 1000 / 1.6)
    assert seconds_for(rate, 10, 5, 10) == pytest.approx(5 + 100 / 1.6)
    assert seconds_for(rate, 10, 5, 1) == pytest.approx(5 + 80)


def test_the_command_prints_both_tables_or_says_what_is_missing(tmp_path: Path):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(MEASURED))
    printed = CliRunner().invoke(application("scale"), [str(path), "--gigabits", "25"])
    assert printed.exit_code == 0
    assert "| spark_traffic | 429 | 50 % | 1.25 | 2.00 of 2 |" in printed.stdout
    assert "| 1,000 TB | 24 h | 27 | 4 |" in printed.stdout
    assert "| spark_traffic | 4.0 | 2.33 | 2 | 0.91 | 132 | 17 |" in printed.stdout
    path.write_text('{"medians": []}')
    nothing = CliRunner().invoke(application("scale"), [str(path)])
    assert nothing.exit_code == 1
    assert "has none of the cases spark_traffic" in nothing.stderr
