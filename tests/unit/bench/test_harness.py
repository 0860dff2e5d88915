"""The commands of bench/run; medians, ratios and tables of a report, which leaves no trouble out."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench import harness
from bench.harness import COMMANDS, Report, Row, application, chosen, turns

ROOT = Path(__file__).parents[3]
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


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr(harness, "heading", lambda **_: {"commit": "abc"})
    made = Report(3)
    for row in ROWS:
        made.add(row)
    return made


def listed() -> set[str]:
    return set(re.findall(r'^names="(.*)"$', (ROOT / "bench" / "run").read_text(), re.MULTILINE)[0].split())


def test_the_list_is_that_of_the_harness() -> None:
    assert listed() == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_benchmark_describes_its_options(name: str) -> None:
    done = CliRunner().invoke(application(name), ["--help"])

    assert done.exit_code == 0, done.output
    assert {"profile_send": "--bursts", "scale": "--gigabits", "delayed": "--timer"}.get(name, "--") in done.output


def test_each_benchmark_of_a_page_or_a_module_is_in_the_list() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("bench/*.*")]
    named = {name for page in pages for name in re.findall(r"bench/run (\w+)", page.read_text())}

    assert named - listed() == set()


def test_each_figure_is_the_median_of_the_rounds_that_have_it(report: Report) -> None:
    lines = report.comparison("java", "ours", ["start", "rate", "p50", "cpu"], ["A", "B", "B / A"]).splitlines()

    assert lines == [
        "| scenario | figure | A | B | B / A |",
        "|---|---|---:|---:|---:|",
        "| start | start | 4.00 | 0.50 | 0.12 |",
        "| sync64 | rate | 30,000 | 50,000 | 1.67 |",
        "| sync64 | p50 | 1.60 | 0.70 | 0.44 |",
        "| sync64 | cpu | 26.00 | 10.00 | 0.38 |",
        "| drain | cpu | - | 3.00 | - |",
    ]


def test_a_table_has_a_line_for_each_subject_and_load_and_shows_gaps(report: Report) -> None:
    lines = report.table(["client", "load"], {"rate": ("messages/s", ",.0f"), "cpu": ("µs", ".1f")}).splitlines()

    assert lines[:2] == ["| client | load | messages/s | µs |", "|---|---|---:|---:|"]
    assert "| ours | sync64 | 50,000 | 10.0 |" in lines
    assert "| ours | drain | - | 3.0 |" in lines


def test_without_figures_of_the_first_there_is_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "heading", lambda **_: {})
    report = Report(1)
    report.add(Row(1, "java", "x", {"rate": 0.0}))
    report.add(Row(1, "ours", "x", {"rate": 1.0}))

    assert report.comparison("java", "ours", ["rate"], ["A", "B", "C"]).endswith("| x | rate | 0.00 | 1.00 | - |")


def test_a_trouble_is_told_with_its_place_and_is_status_one(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"

    with pytest.raises(typer.Exit) as ended:
        report.end(file)

    assert ended.value.exit_code == 1
    assert capsys.readouterr().out.endswith("TROUBLE round 3, ours, drain: 7 of 9 messages were delivered\n")
    told = json.loads(file.read_text())
    assert told["run"] == {"commit": "abc"}
    assert told["rows"][1] == {
        "round": 1, "subject": "java", "load": "sync64", "figures": ROWS[1].figures, "trouble": "",
    }  # fmt: skip
    assert {"subject": "ours", "load": "sync64", "figure": "p50", "median": 0.7} in told["medians"]


def test_rounds_begin_with_different_ones() -> None:
    assert list(turns(2, "ab")) == [(1, "a"), (1, "b"), (2, "b"), (2, "a")]


def test_an_unknown_name_is_rejected_with_the_known_ones() -> None:
    assert chosen("b, a,b", "ab", "load") == ["b", "a"]
    with pytest.raises(typer.BadParameter, match="unknown load 'c'; known: a, b"):
        chosen("a,c", "ab", "load")
