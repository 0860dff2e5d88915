"""Number of cores and hosts that follows from measurements."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.analytics import PB, TB, Rate, cores_for, hosts_for, rates
from bench.harness import application

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


def test_cores_and_hosts_are_enough_and_not_one_too_many():
    rate = Rate("job", 1 / 100e6, 0.5, 1, 2, 2)  # 100 MB/s and core
    assert cores_for(rate, TB, 10) == 17  # 10,000 core seconds in 600
    assert cores_for(rate, PB, 60) == 2778
    assert cores_for(rate, 1, 60) == 1
    assert hosts_for(TB, 10, 10) == 2  # 800 s of one host
    assert hosts_for(TB, 60, 10) == 1
    assert hosts_for(PB, 60, 10) == 223


def test_the_command_prints_both_tables_or_says_what_is_missing(tmp_path: Path):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(MEASURED))
    printed = CliRunner().invoke(application("scale"), [str(path), "--gigabits", "25"])
    assert printed.exit_code == 0
    assert "| spark_traffic | 429 | 50 % | 1.25 | 2.00 of 2 |" in printed.stdout
    assert "| 1,000 TB | 24 h | 27 | 4 |" in printed.stdout
    path.write_text('{"medians": []}')
    nothing = CliRunner().invoke(application("scale"), [str(path)])
    assert nothing.exit_code == 1
    assert "has none of the cases spark_traffic" in nothing.stderr
