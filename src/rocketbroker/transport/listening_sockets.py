"""Bound sockets that do not listen yet: a server knows its port before anything depends on it."""

import socket
from collections.abc import Iterable

from rocketbroker.common.errors import ConfigError

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
_TRIES = 20


def bind_sockets(host: str, port: int, second_below: int = 0) -> list[socket.socket]:
    """Bind a port and, if ``second_below`` is not 0, the port that much lower; return the sockets, ``port`` first.

    Args:
        host: address or name to bind; empty for all addresses. A name is bound at each of its addresses.
        port: 0 picks a free port whose second port is free too.
        second_below: distance to the second port; a second port of 0 or less is left out.

    Raises:
        ConfigError: A port cannot be bound; the text names the address and the cause.
    """
    for _ in range(_TRIES if port == 0 else 1):
        sockets = _bind(host, port)
        second = port_of(sockets[0]) - second_below
        if second_below == 0 or second <= 0:
            return sockets
        try:
            return sockets + _bind(host, second)
        except ConfigError as error:
            close_sockets(sockets)
            failed = ConfigError(
                f"{error}. Port {second} is the VIP port of {second + second_below}: clients may use both"
            )
    raise failed


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Release the ports."""
    for sock in sockets:
        sock.close()


def port_of(sock: socket.socket) -> int:
    """Return the port to which a socket is bound."""
    port: int = sock.getsockname()[1]
    return port


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Return the error for an address that cannot be bound."""
    cause = error.strerror or error
    return ConfigError(
        f"cannot listen on {host or ALL_ADDRESSES}:{port}: {cause}; stop the process that uses it or choose another "
        "port"
    )


def _bind(host: str, port: int) -> list[socket.socket]:
    """Bind one port at all addresses of the host."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or ALL_ADDRESSES, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port_of(sockets[0]) if len(sockets) > 1 else port, *address[2:]))
    except OSError as error:
        close_sockets(sockets)
        raise cannot_listen(host, port, error) from error
    return sockets
