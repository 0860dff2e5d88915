"""Threads behind a server's log, and its form as JSON."""

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from rocketbroker.app import logging_setup, server_log
from rocketbroker.app.log_files import FILE_ONLY, METRICS_LOGGER, STATS_LOGGER
from rocketbroker.app.server_log import LogSink, ServerLog
from rocketbroker.auth.audit_log import AuditLog, Source
from rocketbroker.common.config import BrokerConfig
from rocketbroker.metrics import log_exporter
from rocketbroker.metrics.data_points import Batch, OtelName, Point, Points
from tests.support.fakes import FakeClock

LOGGER = "rocketbroker.store.test"


@pytest.fixture(autouse=True)
def kept_loggers() -> Iterator[None]:
    root, asyncio_log = logging.getLogger(), logging.getLogger("asyncio")
    kept = root.handlers[:], root.level, asyncio_log.level
    yield
    root.handlers[:], root.level, asyncio_log.level = kept
    for name in FILE_ONLY:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


def test_a_line_goes_to_the_terminal_and_to_its_file(terminal: io.StringIO, tmp_path: Path):
    with ServerLog(BrokerConfig(log_dir=str(tmp_path)), "broker", terminal=terminal):
        logging.getLogger(LOGGER).info("topic %s is created", "T\n")

    assert terminal.getvalue().endswith("INFO    rocketbroker.store.test - topic T\\n is created\n")
    assert (tmp_path / "store.log").read_text() == terminal.getvalue()


def test_lines_take_their_arguments_as_they_are_now(terminal: io.StringIO):
    topics = ["T1"]
    with ServerLog(BrokerConfig(), "broker", terminal=terminal):
        logging.getLogger(LOGGER).info("topics: %s", topics)
        topics.append("T2")

    assert terminal.getvalue().endswith("topics: ['T1']\n")


def test_a_line_may_be_a_json_object(terminal: io.StringIO):
    with ServerLog(BrokerConfig(log_format="json"), "broker", terminal=terminal):
        try:
            int("x")
        except ValueError:
            logging.getLogger(LOGGER).exception("bad %s", "测\n\u2028")

    (line,) = terminal.getvalue().splitlines()
    fields = json.loads(line)
    assert line.isascii()
    assert fields["message"] == "bad 测\n\u2028"
    assert (fields["level"], fields["logger"], fields["thread"]) == ("ERROR", LOGGER, threading.current_thread().name)
    assert fields["exception"].endswith("ValueError: invalid literal for int() with base 10: 'x'")
    assert fields["time"][10] == "T"
    assert fields["time"][-6] in "+-"


def test_figures_go_to_their_file_alone_and_are_no_flood(terminal: io.StringIO, tmp_path: Path):
    with ServerLog(BrokerConfig(log_dir=str(tmp_path)), "broker", terminal=terminal):
        for number in range(1_500):
            logging.getLogger(STATS_LOGGER).info("figure %d", number)

    assert len((tmp_path / "stats.log").read_text().splitlines()) == 1_500
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_metrics_are_whole_json_documents_in_a_file_of_their_own(
    terminal: io.StringIO, tmp_path: Path, form: Literal["text", "json"]
):
    points = [Point({"topic": f"topic-{number}"}, number, 0) for number in range(300)]
    batch = Batch({}, 1, [Points("broker-meter", OtelName("m", ""), "help", "gauge", points)], {})
    with ServerLog(BrokerConfig(log_dir=str(tmp_path), log_format=form), "broker", terminal=terminal):
        asyncio.run(log_exporter.LogExporter().export(batch, in_delta=False))

    assert log_exporter.log.name == METRICS_LOGGER
    (line,) = (tmp_path / "broker_metrics.log").read_text().splitlines()
    assert len(line) > 20_000
    assert len(json.loads(line)["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"]) == 300
    assert [path.name for path in tmp_path.iterdir()] == ["broker_metrics.log"]
    assert terminal.getvalue() == ""


def test_the_level_of_the_log_silences_no_figures(terminal: io.StringIO, tmp_path: Path):
    with ServerLog(BrokerConfig(log_dir=str(tmp_path), log_level="ERROR"), "broker", terminal=terminal):
        logging.getLogger(STATS_LOGGER).info("a figure")

    assert "a figure" in (tmp_path / "stats.log").read_text()


@pytest.mark.parametrize("is_on", [True, False])
def test_the_audit_has_a_file_at_any_level_unless_it_is_off(terminal: io.StringIO, tmp_path: Path, is_on: bool):
    config = BrokerConfig(log_dir=str(tmp_path), log_level="ERROR", audit_log_enable=is_on)
    with ServerLog(config, "broker", terminal=terminal):
        audit = AuditLog("broker-a_0", FakeClock())
        assert audit.is_on is is_on
        audit.refused(Source("eve", "192.0.2.7:1"), 25, "no right")

    assert terminal.getvalue() == ""
    written = [path.read_text() for path in tmp_path.iterdir()]
    assert [json.loads(text)["user"] for text in written] == ["eve"] * is_on
    assert [path.name for path in tmp_path.iterdir()] == ["broker_audit.log"] * is_on
    assert not any(path.stat().st_mode & 0o007 for path in tmp_path.iterdir())


def test_a_mistake_in_a_line_does_not_reach_its_caller(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging_setup, "_MOST_LINES", 1)
    with ServerLog(BrokerConfig(), "broker", terminal=terminal):
        logging.getLogger(LOGGER).info("%d messages", "three")

    (line,) = terminal.getvalue().splitlines()
    assert f"the line of {LOGGER} at {__file__}:" in line
    assert "cannot be formatted: TypeError(" in line


def test_a_target_that_raises_does_not_end_its_thread():
    handler = Faulty()
    sink = LogSink(handler, "test")
    sink.start()
    for text in ("bad", "good"):
        sink.put(line(text))
    sink.stop()

    assert handler.taken == ["good"]
    assert handler.errors == ["bad"]


class Faulty(logging.Handler):
    """Handler that fails with some lines."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "bad":
            raise ValueError
        self.taken.append(record.getMessage())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        self.errors.append(record.getMessage())


def test_figures_are_not_made_without_files(terminal: io.StringIO):
    with ServerLog(BrokerConfig(), "broker", terminal=terminal):
        assert not logging.getLogger(STATS_LOGGER).isEnabledFor(logging.INFO)


def test_the_level_is_that_of_the_setting(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETBROKER_LOG_LEVEL", "DEBUG")
    with ServerLog(BrokerConfig(log_level="WARN"), "broker", terminal=terminal):
        logging.getLogger(LOGGER).info("not this")
        logging.getLogger(LOGGER).warning("this")

    assert terminal.getvalue().endswith("- this\n")
    assert len(terminal.getvalue().splitlines()) == 1


def test_a_file_that_cannot_be_written_is_named_at_the_terminal(terminal: io.StringIO, tmp_path: Path):
    (tmp_path / "file").touch()
    with ServerLog(BrokerConfig(log_dir=str(tmp_path / "file")), "broker", terminal=terminal):
        logging.getLogger(LOGGER).info("a line")

    assert "a line\n" in terminal.getvalue()
    assert "store.log cannot be written: " in terminal.getvalue()


class Stuck(logging.Handler):
    """Handler that takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.may = threading.Event()
        self.taken: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        self.may.wait()
        self.taken.append(record.getMessage())


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord(LOGGER, logging.INFO, "x.py", 1, text, (), None)


def test_a_terminal_that_nobody_reads_holds_no_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_log, "_MOST_WAITING", 3)
    stuck = Stuck()
    sink = LogSink(stuck, "test")
    sink.start()
    sink.put(line("0"))
    assert stuck.entered.wait(60)
    for number in range(1, 10):
        sink.put(line(str(number)))

    stuck.may.set()
    sink.stop()

    assert stuck.taken == ["0", "6 log lines were dropped: writing is slower than logging", "1", "2", "3"]


def test_the_end_of_a_process_waits_for_no_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_log, "_PATIENCE_S", 0.01)
    stuck = Stuck()
    sink = LogSink(stuck, "test")
    sink.start()
    sink.put(line("0"))

    sink.stop()

    assert stuck.taken == []
    stuck.may.set()
