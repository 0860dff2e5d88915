"""Log lines that hold what a peer sent."""

import logging
import sys
import time
from collections.abc import Iterator

import pytest

from rocketbroker.app.logging_setup import LEVEL_VARIABLE, FloodFilter, LineFormatter, one_line, set_up_logging
from rocketbroker.common.errors import ConfigError

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


@pytest.fixture(autouse=True)
def kept_loggers() -> Iterator[None]:
    root, asyncio_logger = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, asyncio_logger.level
    yield
    root.handlers[:], level, asyncio_level = before
    root.setLevel(level)
    asyncio_logger.setLevel(asyncio_level)


def test_lines_from_the_level_on_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    set_up_logging()
    logging.getLogger("rocketbroker.x").debug("not this")
    logging.getLogger("rocketbroker.x").info("but this %d", 7)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.endswith("INFO    rocketbroker.x - but this 7\n")
    assert "not this" not in written.err


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "error")
    set_up_logging()
    assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger("asyncio").level == logging.ERROR
    set_up_logging("debug")
    assert logging.getLogger().level == logging.DEBUG
    assert logging.getLogger("asyncio").level == logging.WARNING


def test_it_may_be_set_up_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_logging("INFO")
    set_up_logging("INFO")
    assert len(logging.getLogger().handlers) == 1


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown log level 'CHATTY' .*; use one of DEBUG, INFO,"):
        set_up_logging("chatty")
