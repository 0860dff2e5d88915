"""The comparison of clients: figures of each load, and the table of medians."""

import sys
from pathlib import Path

import pytest
import typer

from bench import clients, load
from bench.clients import Row, run_client, table


@pytest.fixture(autouse=True)
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "jars", lambda _version: Path("jars"))


def driver(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(clients, "command_of", lambda _client, _home: [sys.executable, "-c", script])


def test_outcome_processor_time_and_memory_are_those_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    driver(monkeypatch, "sum(range(3_000_000)); print('a line'); print('{\"rate\": 5.0, \"done\": 7}')")

    outcome, cpu, memory = run_client("ours", [], tmp_path, 60)

    assert outcome == load.Outcome(rate=5.0, done=7)
    assert 0 < cpu < 30
    # The kernel counts what the process had before it became the client, as a copy of this one.
    assert memory > 1


def test_a_client_that_fails_shows_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    driver(monkeypatch, "raise SystemExit('no broker')")

    outcome, _, _ = run_client("ours", [], tmp_path, 60)

    assert outcome.trouble == "the client ended with 1: no broker"


def test_a_client_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    driver(monkeypatch, "import signal; signal.pause()")

    outcome, _, _ = run_client("ours", [], tmp_path, 0.1)

    assert outcome.trouble.startswith("the client ended with -9")


def test_the_table_has_medians_and_gaps():
    rows = [Row("ours", "send", {"rate": rate, "p50": 1.0, "cpu": 12.34}) for rate in (1000.0, 3000.0, 2000.0)]
    rows.append(Row("cpp", "send", {}, "no broker"))

    assert table(rows).splitlines()[2:] == [
        "| rocketbroker.client | send | 2,000 | 1.00 | - | 12.3 | - |",
        "| rocketmq 0.4.4 (C++) | send | - | - | - | - | - |",
    ]


def test_an_unknown_client_is_named_with_the_known_ones():
    with pytest.raises(typer.BadParameter, match="no client rust, there are ours, cpp, jpype, java"):
        clients._chosen("ours,rust")
