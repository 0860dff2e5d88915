"""Medians and ratios are those of the rounds, and nothing that went wrong is left out."""

import json
from pathlib import Path

import pytest

from bench.side_by_side import Line, Row, as_json, comparison, conclude, lines, troubles

ROWS = [
    Row(1, "java", "start", {"start": 4.0}),
    Row(1, "java", "sync64", {"rate": 30_000.0, "p50": 1.5, "cpu": 25.0}),
    Row(1, "ours", "start", {"start": 0.5}),
    Row(1, "ours", "sync64", {"rate": 60_000.0, "p50": 0.9, "cpu": 9.0}),
    Row(2, "ours", "sync64", {"rate": 45_000.0, "p50": 0.6, "cpu": 10.0}),
    Row(2, "java", "sync64", {"rate": 20_000.0, "p50": 1.7, "cpu": 27.0}),
    Row(3, "java", "sync64", {"rate": 35_000.0, "p50": 1.6}),
    Row(3, "ours", "sync64", {"rate": 50_000.0, "p50": 0.7, "cpu": 11.0}),
    Row(3, "ours", "drain", {"cpu": 3.0}, "7 of 9 messages were delivered"),
]


def test_each_figure_is_the_median_of_the_rounds_that_have_it():
    assert list(lines(ROWS)) == [
        Line("start", "start", 4.0, 0.5),
        Line("sync64", "rate", 30_000.0, 50_000.0),
        Line("sync64", "p50", 1.6, 0.7),
        Line("sync64", "cpu", 26.0, 10.0),
        Line("drain", "cpu", None, 3.0),
    ]


def test_the_ratio_is_ours_to_javas():
    assert Line("sync64", "rate", 30_000.0, 45_000.0).ratio == pytest.approx(1.5)


@pytest.mark.parametrize(("java", "ours"), [(None, 1.0), (1.0, None), (0.0, 1.0)])
def test_without_both_sides_there_is_no_ratio(java: float | None, ours: float | None):
    assert Line("sync64", "rate", java, ours).ratio is None


def test_the_table_is_markdown():
    rows = comparison(lines(ROWS)).splitlines()

    assert rows[1].count("|") == rows[0].count("|") == 6
    assert rows[3] == "| sync64 | rate | 30,000 | 50,000 | 1.67 |"
    assert rows[-1] == "| drain | cpu | - | 3.00 | - |"


def test_an_error_is_reported_with_its_place():
    assert troubles(ROWS) == ["round 3, ours, drain: 7 of 9 messages were delivered"]


def test_json_has_every_row_and_the_medians():
    told = json.loads(as_json({"commit": "abc"}, ROWS))

    assert told["run"] == {"commit": "abc"}
    assert told["rows"][1] == {
        "round": 1, "side": "java", "scenario": "sync64", "rate": 30_000.0, "p50": 1.5, "cpu": 25.0, "trouble": "",
    }  # fmt: skip
    assert len(told["rows"]) == len(ROWS)
    assert told["medians"][2]["ratio"] == pytest.approx(0.7 / 1.6)


@pytest.mark.parametrize(("rows", "status"), [(ROWS[:-1], 0), (ROWS, 1)])
def test_the_end_of_a_run(rows: list[Row], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    json_file = tmp_path / "figures.json"

    assert conclude({"commit": "abc"}, rows, json_file) == status

    assert capsys.readouterr().out == "".join(f"TROUBLE {trouble}\n" for trouble in troubles(rows))
    assert json_file.read_text() == as_json({"commit": "abc"}, rows)
