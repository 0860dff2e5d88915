"""The switch that drops packets between machines."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.packet_switch import HERE, PacketSwitch
from tests.support.waiting import wait_until

PORT = 5000
ECHO = f"""
import socket
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("0.0.0.0", {PORT}))
while True:
    data, peer = server.recvfrom(100)
    server.sendto(data, peer)
"""
SHORT_S = 0.2


@pytest.fixture
def switch() -> Iterator[PacketSwitch]:
    """A switch with machine a, which sends each packet back."""
    with PacketSwitch("a") as made:
        echo = subprocess.Popen([*made.runner("a"), sys.executable, "-P", "-c", ECHO])
        try:
            wait_until(lambda: is_echoed(made), "the machine answers")
            yield made
        finally:
            echo.kill()
            echo.wait()


def is_echoed(switch: PacketSwitch) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(SHORT_S)
        client.connect((switch.address("a"), PORT))
        try:
            client.send(b"x")
            return client.recv(100) == b"x"
        except (TimeoutError, ConnectionRefusedError):
            return False


@pytest.mark.parametrize("link", [(HERE, "a"), ("a", HERE)])
def test_a_link_is_cut_one_way(switch: PacketSwitch, link: tuple[str, str]):
    switch.drop(*link, 1.0)
    assert not is_echoed(switch)

    switch.heal()
    wait_until(lambda: is_echoed(switch), "the link is whole")
