"""The store fits the disk, the middle is the middle, ratios are of medians; the command runs over real brokers."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import big_store
from bench.big_store import FRESH, MIDDLE, QUEUES, SENT, Pass, count_for, generator_of, made_in, middle_of, table
from bench.harness import application

GIB = 1 << 30


def test_a_hundred_million_messages_take_about_16_gb(tmp_path: Path):
    assert 15e9 < generator_of(tmp_path, 100_000_000).disk_bytes < 17e9


def test_the_count_is_what_there_is_room_for(tmp_path: Path):
    assert count_for(10_000_000, 64 * GIB) == 10_000_000

    count = count_for(100_000_000, 8 * GIB)
    assert 0.9 * 8 * GIB < generator_of(tmp_path, count).disk_bytes < 8 * GIB


def test_the_middle_has_as_much_before_it_as_after_it(tmp_path: Path):
    made = generator_of(tmp_path, 1000 * QUEUES)

    assert middle_of(made, 100) == [450] * QUEUES


def test_ratios_are_of_the_medians_after_the_first_pass():
    rates = {MIDDLE: [10.0, 90.0, 100.0, 110.0], FRESH: [20.0, 50.0, 50.0, 50.0], SENT: [200.0] * 4}
    found = [Pass(place, number, rate, 2.0, 32.0) for place, all_ in rates.items() for number, rate in enumerate(all_)]

    rows = list(table(found))[2:]

    assert [row.split("|")[2:5] for row in rows] == [
        [" 10 ", " 100 ", " 1.00 "],
        [" 20 ", " 50 ", " 2.00 "],
        [" 200 ", " 200 ", " 0.50 "],
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")
def test_the_command_uses_a_store_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = tmp_path / "kept"
    store.mkdir()
    made_in(store, 2000, 160)
    assert "2,000 messages written" in capsys.readouterr().out
    arguments = ["--messages", "2000", "--pull", "160", "--rounds", "1", "--store", str(store), "--dir", str(tmp_path)]

    done = CliRunner().invoke(application("big_store"), arguments)

    assert done.exit_code == 0, done.output
    assert "messages written" not in done.output
    assert "| the middle of the big store |" in done.output
    assert list(tmp_path.iterdir()) == [store]


def test_a_disk_that_is_too_small_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(big_store, "room", lambda folder: GIB >> 4)

    done = CliRunner().invoke(application("big_store"), ["--pull", "400000", "--dir", str(tmp_path)])

    assert done.exit_code == 1
    assert "has room for 0 messages only, fewer than --pull" in done.output
