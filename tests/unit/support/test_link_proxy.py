"""The proxy that holds bytes back."""

import socket

import pytest

from tests.support import link_proxy
from tests.support.link_proxy import BACK, FORWARD, LinkProxy
from tests.support.ports import LOOPBACK

SHORT_S = 0.1


def test_a_port_in_use_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(link_proxy, "free_ports", lambda: port)
        with pytest.raises(OSError, match="in use"):
            LinkProxy(port)


@pytest.mark.parametrize("direction", [FORWARD, BACK])
def test_a_cut_direction_holds_its_bytes_until_it_is_whole(direction: str):
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        LinkProxy(server.getsockname()[1]) as link,
        socket.create_connection((LOOPBACK, link.port)) as client,
    ):
        peer, _ = server.accept()
        with peer:
            sender, receiver = (client, peer) if direction == FORWARD else (peer, client)
            link.drop(direction, 1.0)
            receiver.sendall(b"other way")
            assert sender.recv(100) == b"other way"
            sender.sendall(b"held")
            receiver.settimeout(SHORT_S)
            with pytest.raises(TimeoutError):
                receiver.recv(100)
            link.heal()
            receiver.settimeout(None)
            assert receiver.recv(100) == b"held"
