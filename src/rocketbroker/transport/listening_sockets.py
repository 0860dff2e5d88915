"""Bound sockets that do not listen yet: a server knows its port before anything depends on it.

Between ``bind`` and ``listen`` a port can be lost. Linux lets two sockets with SO_REUSEADDR bind the same port while
neither listens, and the second to listen fails with "Address already in use". A port that the system chose is therefore
bound without that option: nobody else can have it from then on. The option is set once it listens, so that the
connections of a stopped server, which stay in TIME_WAIT for a minute, do not keep the next one from binding it. A given
port needs the option from the start, for the same reason.
"""

import socket
from collections.abc import Iterable

from rocketbroker.common.errors import ConfigError

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
_TRIES = 20


def bind_sockets(host: str, port: int, second_below: int = 0, *, exclusive: bool = False) -> list[socket.socket]:
    """Bind a port and, if ``second_below`` is not 0, the port that much lower; return the sockets, ``port`` first.

    Args:
        host: address or name to bind; empty for all addresses. A name is bound at each of its addresses.
        port: 0 picks a free port whose second port is free too.
        second_below: distance to the second port; a second port of 0 or less is left out.
        exclusive: nobody else can bind the port before it listens, as always with port 0. Binding fails while
            connections of an earlier server are in TIME_WAIT.

    Raises:
        ConfigError: A port cannot be bound; the text names the address and the cause.
    """
    exclusive = exclusive or port == 0
    for _ in range(_TRIES if port == 0 else 1):
        sockets: list[socket.socket] = []
        try:
            sockets = _bind(host, port, exclusive=exclusive)
            second = port_of(sockets[0]) - second_below
            if second_below and second > 0:
                return sockets + _bind(host, second, exclusive=exclusive)
        except ConfigError as error:
            close_sockets(sockets)
            failed = error
            if sockets:
                vip = f"Port {second} is the VIP port of {second + second_below}: clients may use both"
                failed = ConfigError(f"{error}. {vip}")
        else:
            return sockets
    raise failed


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Release the ports."""
    for sock in sockets:
        sock.close()


def port_of(sock: socket.socket) -> int:
    """Return the port to which a socket is bound."""
    port: int = sock.getsockname()[1]
    return port


def listen(sock: socket.socket, backlog: int) -> None:
    """Let a bound socket listen; it is closed on an error.

    Raises:
        ConfigError: Another process took the port after it was bound.
    """
    host, port = sock.getsockname()[:2]
    try:
        sock.listen(backlog)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        sock.close()
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Return the error for an address that cannot be bound."""
    cause = error.strerror or error
    return ConfigError(
        f"cannot listen on {host or ALL_ADDRESSES}:{port}: {cause}; stop the process that uses it or choose another "
        "port"
    )


def _bind(host: str, port: int, *, exclusive: bool) -> list[socket.socket]:
    """Bind one port at all addresses of the host."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or ALL_ADDRESSES, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            if not exclusive:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port_of(sockets[0]) if len(sockets) > 1 else port, *address[2:]))
    except OSError as error:
        close_sockets(sockets)
        raise _cannot_listen(host, port, error) from error
    return sockets
