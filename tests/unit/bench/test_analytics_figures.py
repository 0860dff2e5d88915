"""Medians, ratios and tables from made-up runs."""

import json

from bench.analytics import AIMS, Measure, as_json, lines, markdown, ratios


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


def test_workers_are_compared_with_their_limit():
    assert "| peak of a worker, MiB | all | ≤ 1024 | 2000 | not met |" in markdown(
        lines([run("spark_full", 1, cores=2, peak=2000.0), run("full", 1, peak=9000.0)])
    )


def test_json_has_all_that_other_programs_need():
    found = json.loads(as_json({"commit": "abc"}, [run("read", 1.0), run("headers", 2.0)]))
    assert found["run"] == {"commit": "abc"}
    assert [line["cpu_ns"] for line in found["medians"]] == [1000.0, 2000.0]
    assert found["ratios"] == [
        {"text": AIMS[0].text, "gib": 1, "aim": "≤ 1.5", "ratio": 2.0, "met": False},
    ]
    assert [each["name"] for each in found["runs"]] == ["read", "headers"]
