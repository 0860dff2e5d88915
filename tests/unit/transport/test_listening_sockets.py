import socket

import pytest

from rocketbroker.common.errors import ConfigError
from rocketbroker.transport import listening_sockets
from rocketbroker.transport.listening_sockets import bind_sockets, close_sockets, listen, port_of
from tests.support.ports import LOOPBACK, free_ports


def test_a_free_port_comes_with_a_second_one_below_it():
    sockets = bind_sockets(LOOPBACK, 0, 2)
    first, second = map(port_of, sockets)

    assert first > 0
    assert second == first - 2
    close_sockets(sockets)
    again = bind_sockets(LOOPBACK, first, 2)
    assert [port_of(sock) for sock in again] == [first, second]
    close_sockets(again)


def can_be_taken(port: int) -> bool:
    """Return true if another process could listen on a port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((LOOPBACK, port))
            other.listen()
        except OSError:
            return False
        return True


def test_nobody_takes_a_free_port_before_it_listens():
    sockets = bind_sockets(LOOPBACK, 0, 2)
    given = bind_sockets(LOOPBACK, free_ports(), exclusive=True)

    assert [sock for sock in [*sockets, *given] if can_be_taken(port_of(sock))] == []
    close_sockets([*sockets, *given])


def test_a_free_port_can_be_bound_again_at_once():
    """Connections that the server closed are in TIME_WAIT."""
    [sock] = bind_sockets(LOOPBACK, 0)
    port = port_of(sock)
    listen(sock, 1)
    with socket.create_connection((LOOPBACK, port)) as client:
        sock.setblocking(True)
        sock.accept()[0].close()
        assert client.recv(1) == b""
    sock.close()
    [again] = bind_sockets(LOOPBACK, port)
    listen(again, 1)
    again.close()


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


def test_a_free_port_that_is_taken_at_another_address_is_chosen_again(monkeypatch: pytest.MonkeyPatch):
    """The system chooses by the first address."""
    tries: list[int] = []
    real = listening_sockets._bind

    def bind(host: str, port: int, *, exclusive: bool) -> list[socket.socket]:
        tries.append(port)
        if len(tries) == 1:
            raise ConfigError(f"cannot listen on {host}: in use at its second address")
        return real(host, port, exclusive=exclusive)

    monkeypatch.setattr(listening_sockets, "_bind", bind)
    close_sockets(bind_sockets(LOOPBACK, 0))
    assert tries == [0, 0]
    tries.clear()
    with pytest.raises(ConfigError, match="in use at its second address"):
        bind_sockets(LOOPBACK, free_ports())
