"""Sends to several brokers of one command."""

import socket
import sys
import threading
from pathlib import Path

import pytest

from bench.broker_scale import Rate, Sender, measure, table
from bench.harness import BenchError
from bench.servers import several
from tests.support.raw_client import raw_frame, raw_header


def answers(*codes: int) -> bytes:
    return b"".join(raw_frame(raw_header(code)) for code in codes)


def counted(data: bytes, piece: int) -> None:
    """Count answers that come in pieces."""
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def feed() -> None:
            for start in range(0, len(data), piece):
                theirs.sendall(data[start : start + piece])
            theirs.shutdown(socket.SHUT_WR)

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            Sender._count(ours)
        finally:
            feeding.join()


def test_answers_are_counted_however_they_come() -> None:
    for piece in (7, 1 << 16):
        counted(answers(*[0] * 64), piece)


@pytest.mark.parametrize(
    ("codes", "text"), [([0] * 63 + [1], "rejected a message"), ([0] * 63, "closed the connection")]
)
def test_a_rejection_and_a_lost_connection_are_errors(codes: list[int], text: str) -> None:
    with pytest.raises(BenchError, match=text):
        counted(answers(*codes), 1 << 16)


def test_the_table_has_the_best_rate_and_the_least_cpu_time() -> None:
    lines = list(table({1: [Rate(1000, 9, 0.5, 200), Rate(2000, 10, 0.7, 200)]}))

    assert lines[2:] == ["| 1 | 2,000 | 9.0 | 0.70 | 200 |"]


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_two_brokers_of_one_command_take_all_messages(tmp_path: Path) -> None:
    with several(tmp_path, 2) as brokers:
        rate = measure(brokers, 2, 16, 0.5)

    assert len(set(brokers.addresses)) == 2
    assert rate.messages > 0
    assert rate.stored > 16
