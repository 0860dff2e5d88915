import socket

import pytest

from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.listening_sockets import bind_sockets, close_sockets, port_of

LOOPBACK = "127.0.0.1"


def test_a_free_port_comes_with_a_second_one_below_it():
    sockets = bind_sockets(LOOPBACK, 0, 2)
    first, second = map(port_of, sockets)

    assert first > 0
    assert second == first - 2
    close_sockets(sockets)
    again = bind_sockets(LOOPBACK, first, 2)
    assert [port_of(sock) for sock in again] == [first, second]
    close_sockets(again)


def test_a_second_port_that_is_taken_is_named_and_the_first_one_given_back():
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = port_of(taken)
        with pytest.raises(ConfigError, match=f"cannot listen on {LOOPBACK}:{port}: "):
            bind_sockets(LOOPBACK, port + 2, 2)
    close_sockets(bind_sockets(LOOPBACK, port + 2))


def test_a_name_is_bound_at_each_of_its_addresses(monkeypatch: pytest.MonkeyPatch):
    def both(*_arguments: object, **_options: object):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    sockets = bind_sockets("two.test", 0)

    assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "127.0.0.2"]
    assert len({port_of(sock) for sock in sockets}) == 1
    close_sockets(sockets)
