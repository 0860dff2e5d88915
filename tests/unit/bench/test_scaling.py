"""Servers with many peers, here with few, and several brokers of one command."""

import re
import resource
import socket
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.harness import BenchError
from bench.measure import probing
from bench.scaling import BrokerRun, Layout, NamesrvRun, _raise_open_files, _route_frame, count_answers, send_rate
from bench.servers import OUR_SIDE, accepted, broker, brokers, name_server
from tests.support.raw_client import RawAnswer, raw_frame, raw_header

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_each_topic_is_on_as_many_brokers_as_asked_for() -> None:
    layout = Layout(brokers=20, topics=12, spread=5, wide=2)
    tables = [layout.topics_of(each) for each in range(layout.brokers)]
    counts = [sum(topic in table for table in tables) for topic in range(layout.topics)]

    assert counts[:2] == [20, 20]
    # The first broker has all topics.
    assert set(counts[2:]) <= {5, 6}
    assert tables[0] == list(range(12))


@linux
def test_each_phase_of_a_name_server_has_its_figures(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(name_server(OUR_SIDE, tmp_path))
        probe = stack.enter_context(probing(server.address, server.pid, _route_frame(6)))
        run = NamesrvRun(server, probe, Layout(brokers=4, topics=6, spread=2, wide=1))
        found = [name for name, _ in run.figures(stack, 1, 0.05) if name != "probe"]

    assert found[0] == "brokers, topics, topics of all"
    assert found[-2:] == ["a changed topic is in its route after", "memory at the end"]
    assert len(set(found)) == 13


def test_a_rejected_request_ends_the_run() -> None:
    with pytest.raises(BenchError, match="answered 1: maxBrokers"):
        accepted(RawAnswer({"code": 1, "remark": "maxBrokers: too many"}, b""))
    with pytest.raises(BenchError, match="closed the connection"):
        accepted(None)


def test_more_connections_than_open_files_are_refused() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with pytest.raises(BenchError, match=r"connections need .* open files"):
        _raise_open_files(hard)


@pytest.mark.soak
@linux
def test_each_step_of_a_broker_has_its_figures(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(broker(tmp_path))
        figures = dict(BrokerRun(server, 3, 6).figures(stack, 0.1, 5))

    assert [name for name in figures if re.search(r", \d+$", name)] == [
        "topics, 6", "queues, with a message each, 24", "consumer groups, 3", "connections, 3",
        "consumers in a group, 3", "committed offsets, 24", "held pulls, 24",
    ]  # fmt: skip
    assert re.match(r"least \d+\.\d", figures["a held pull is answered after"])


def counted(codes: list[int], piece: int) -> None:
    """Count answers that come in pieces."""
    data = b"".join(raw_frame(raw_header(code)) for code in codes)
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def feed() -> None:
            for start in range(0, len(data), piece):
                theirs.sendall(data[start : start + piece])
            theirs.shutdown(socket.SHUT_WR)

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            count_answers(ours)
        finally:
            feeding.join()


@pytest.mark.parametrize("piece", [7, 1 << 16])
def test_answers_are_counted_however_they_come(piece: int) -> None:
    counted([0] * 64, piece)


@pytest.mark.parametrize(
    ("codes", "text"), [([0] * 63 + [1], "rejected a message"), ([0] * 63, "closed the connection")]
)
def test_a_rejection_and_a_lost_connection_are_errors(codes: list[int], text: str) -> None:
    with pytest.raises(BenchError, match=text):
        counted(codes, 1 << 16)


@pytest.mark.soak
@linux
def test_two_brokers_of_one_command_take_all_messages(tmp_path: Path) -> None:
    with brokers(tmp_path, 2) as (addresses, pid):
        found = send_rate(addresses, pid, 2, 16, 0.5)

    assert len(set(addresses)) == 2
    assert found["rate"] > 0
    assert found["stored"] > 16
