"""Ports for servers of tests: free, not given twice in a row, and never those of another test process."""

import socket
import subprocess
import sys

from tests.support.ports import BLOCK, FIRST, LOOPBACK, ROOT, free_ports


def block_of(port: int) -> int:
    return (port - FIRST) // BLOCK


def test_ports_with_their_neighbours_are_free_and_used_in_turn():
    first, second = free_ports(-2, 1), free_ports(-2, 1)

    assert block_of(first) == block_of(second)
    assert len({first, first + 1, second, second + 1}) == 4
    for port in (second - 2, second, second + 1):
        with socket.create_server((LOOPBACK, port)):
            pass


def test_a_port_in_use_is_skipped():
    port = free_ports()
    with socket.create_server((LOOPBACK, port + 1)):
        assert free_ports() > port + 1


def test_another_process_has_ports_of_its_own():
    code = "from tests.support.ports import free_ports; print(free_ports())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert block_of(int(done.stdout)) != block_of(free_ports())
