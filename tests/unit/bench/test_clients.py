"""The comparison of clients: figures of each load, and what the loads through clients of Python count."""

import itertools
import sys
import time
from pathlib import Path

import pytest

from bench import clients, load
from bench.client_loads import Deliveries, Sends, ours_drain, ours_send, send_by_threads
from bench.clients import run_client
from rocketbroker.testing import RocketMQServer


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time finds it one second later."""
    seconds = itertools.count(1)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.usefixtures("clock")
def test_the_first_third_is_warm_up():
    sends = Sends(9)

    assert sends.note(3.0)
    assert sends.note(4.0, ValueError("refused"))
    assert all(sends.note(begun) for begun in (4.0, 5.0, 5.5, 6.0, 6.5))
    assert sends.note(7.0)
    assert not sends.note(8.0)

    found = sends.outcome()
    assert (found["done"], found["failed"], found["error"]) == (8, 1, "refused")
    assert len(sends.latencies) == 7, "one was begun before 4 s"


@pytest.mark.usefixtures("clock")
def test_deliveries_count_from_the_first_to_the_last():
    deliveries = Deliveries(30)

    for _ in range(3):
        assert not deliveries.complete.is_set()
        deliveries.note(10)

    assert deliveries.complete.is_set()
    assert deliveries.outcome() == {"rate": 15.0, "done": 30, "expected": 30}


def test_threads_send_until_the_end_and_count_failures():
    def fail() -> None:
        raise ValueError("refused")

    outcome = send_by_threads(fail, 2, 0.01)

    assert outcome["done"] == 0
    assert int(str(outcome["failed"])) >= 2
    assert outcome["error"] == "refused"


def test_our_client_sends_and_drains():
    with RocketMQServer() as mq:
        sent = ours_send(mq.namesrv_addr, "ClientLoad", 4, b"x", 0.05)
        deliveries = Deliveries(int(str(sent["done"])))
        ours_drain(mq.namesrv_addr, "ClientLoad", "CG", deliveries, 30)

    assert sent["failed"] == 0
    assert deliveries.outcome()["done"] == sent["done"]
