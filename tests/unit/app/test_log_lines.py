"""Log lines that hold what a peer sent."""

import logging
import sys
import time

import pytest

from rocketbroker.app.log_lines import FloodFilter, LineFormatter, one_line

FORGED = "T\n2026-01-01 00:00:00,000 INFO    rocketbroker.broker - all is well\r\x1b[2J\u2028"


def record(text: str, *values: object, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("rocketbroker.x", logging.INFO, "x.py", line, text, values, None)


def test_a_newline_in_a_name_makes_no_line():
    written = LineFormatter("%(levelname)s %(message)s").format(record("topic %s is created", FORGED))

    assert len(written.splitlines()) == 1
    assert written.isprintable()
    assert r"T\n2026-01-01" in written
    assert r"\x1b[2J\u2028" in written


def test_a_line_of_just_the_limit_is_kept():
    assert one_line("x" * 4096) == "x" * 4096
    assert one_line("x" * 4097) == "x" * 4096 + "... (4097 characters)"


def test_a_name_of_a_megabyte_makes_a_short_line():
    written = LineFormatter().format(record("topic %s is created", "x" * 1_000_000))

    assert len(written) < 4200
    assert written.endswith("xxx... (1000017 characters)")


def test_ordinary_text_stays():
    assert one_line("group G of 测试 has 7 clients") == "group G of 测试 has 7 clients"


def test_no_line_of_a_trace_looks_like_a_record():
    made = record("request code %d failed", 310)
    try:
        int(FORGED + "y" * 1_000_000)
    except ValueError:
        error = ValueError(FORGED + "y" * 1_000_000)
        made.exc_info = ValueError, error, sys.exc_info()[2]

    first, *others = LineFormatter().format(made).splitlines()

    assert first == "request code 310 failed"
    assert others[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in others)
    assert sum(map(len, others)) < 20_000


def test_a_flood_of_one_kind_is_cut_and_others_are_written(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    flood = FloodFilter()

    def written(count: int, line: int = 1) -> list[str]:
        made = [record("topic %d", number, line=line) for number in range(count)]
        return [each.getMessage() for each in made if flood.filter(each)]

    lines = written(100_000)
    assert (len(lines), lines[998]) == (1000, "topic 998")
    assert lines[-1] == "topic 999 (more lines like this are dropped for 10 s)"
    assert written(3, line=2) == ["topic 0", "topic 1", "topic 2"]

    clock[0] += 10
    assert written(2) == ["topic 0 (99000 lines like this were dropped)", "topic 1"]
