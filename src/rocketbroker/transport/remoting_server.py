"""Listening endpoint, and the ports that it binds (NettyRemotingServer)."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.endpoint import Endpoint, EndpointHooks
from rocketbroker.transport.failed_connections import FailedConnections, admitting
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.request_meter import RequestMeter
from rocketbroker.transport.tls_transport import FirstByte, ServerTls

log = logging.getLogger(__name__)

# Bound sockets that do not listen yet: a server knows its port before anything depends on it.
#
# Between ``bind`` and ``listen`` a port can be lost. Linux lets two sockets with SO_REUSEADDR bind the same port while
# neither listens, and the second to listen fails with "Address already in use". A port that the system chose is
# therefore bound without that option: nobody else can have it from then on. The option is set once it listens, so that
# the connections of a stopped server, which stay in TIME_WAIT for a minute, do not keep the next one from binding it. A
# given port needs the option from the start, for the same reason.

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
            sockets = bind_port(host, port, exclusive=exclusive)
            second = port_of(sockets[0]) - second_below
            if second_below and second > 0:
                return sockets + bind_port(host, second, exclusive=exclusive)
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


def bind_port(host: str, port: int, *, exclusive: bool) -> list[socket.socket]:
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


async def close_servers(servers: Sequence[asyncio.Server]) -> None:
    """Stop accepting, and close the ports once every accepted connection has reached its protocol.

    ``Server.close`` alone loses a connection for which asyncio has yet to make a transport: nothing would close it, and
    its client would wait for an answer.
    """
    if not servers:
        return
    loop = asyncio.get_running_loop()
    try:
        for server in servers:
            for sock in server.sockets:
                loop.remove_reader(sock)  # asyncio accepts no more; uvloop does until the port is closed
        # asyncio makes transports in the next turn of the loop, and tells protocols in the one after it.
        for _ in range(2):
            await asyncio.sleep(0)
    finally:
        for server in servers:
            server.close()
    # uvloop tells protocols about the last connections in this turn.
    await asyncio.sleep(0)


_BACKLOG = 1024


class RemotingServer:
    """Accept connections and serve the routes.

    Args:
        routes: handlers by request code.
        host: address to bind; empty for all addresses.
        port: port to bind; 0 picks a free one, which ``port`` then holds.
        limits: limits on peers.
        hooks: callables that take part in the work of its connections.
        tls: serves TLS, besides plain text or alone; ``None`` for plain text alone.
        send_away_s: returns the seconds for which a stop answers GO_AWAY before it closes connections; 0 closes them
            at once.
    """

    def __init__(
        self,
        routes: dict[int, Route],
        *,
        host: str = "",
        port: int = 0,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        hooks: EndpointHooks = EndpointHooks(),  # noqa: B008 - a tuple never changes
        tls: ServerTls | None = None,
        send_away_s: Callable[[], float] = float,
    ) -> None:
        self.tls = tls
        self._send_away_s = send_away_s
        self.host = host
        self.port = port
        self._sockets: Sequence[socket.socket] = ()
        # Accounts of a server with TLS are those of its handshakes.
        failed = None if tls is None else tls.failed_connections
        self._endpoint = Endpoint("server", routes, limits, hooks, failed=failed)
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> set[RemotingConnection]:
        """Open connections."""
        return cast("set[RemotingConnection]", self._endpoint.connections)

    @property
    def meter(self) -> RequestMeter:
        """Counts and times of all requests."""
        return self._endpoint.meter

    @property
    def rejected_connections(self) -> Mapping[str, int]:
        """Number of rejected connections by cause: the setting whose limit was reached."""
        return self._endpoint.rejected_connections

    @property
    def failed_connections(self) -> FailedConnections:
        """Failed connections by address."""
        return self._endpoint.failed

    def readmit(self) -> None:
        """Choose the audience of every open connection again, after a change of settings."""
        self._endpoint.readmit()

    def listen_on(self, sockets: Sequence[socket.socket]) -> None:
        """Let ``start`` listen on sockets of ``bind_sockets`` instead of binding host and port."""
        self._sockets = sockets
        self.port = port_of(sockets[0])

    async def start(self) -> None:
        """Bind the port and accept connections.

        Raises:
            ConfigError: The address cannot be bound; the text names the address and the cause.
        """
        sockets = self._sockets or bind_sockets(self.host, self.port)
        self.port = port_of(sockets[0])
        try:
            for sock in sockets:
                await self._listen(sock)
        except BaseException:
            await self.stop()
            raise
        self._endpoint.watch()

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listen(sock, _BACKLOG)  # uvloop would leak a socket that cannot listen
        new_connection = admitting(self._endpoint.failed, self._new_connection)
        server = await loop.create_server(new_connection, sock=sock, backlog=_BACKLOG)
        self._servers.append(server)

    def _new_connection(self) -> asyncio.BaseProtocol:
        connection = RemotingConnection(self._endpoint)
        return connection if self.tls is None else FirstByte(connection, self.tls)

    async def stop(self) -> None:
        """Send clients away if wanted, stop accepting, end the tasks of open requests, close all connections.

        Clients are sent away while connections are still accepted: RocketMQ's client answers GO_AWAY by a new
        connection, and would take a refused one for a broken broker.
        """
        limit_s, count = self._send_away_s(), len(self._endpoint.connections)
        if limit_s and count:
            log.info(
                "clients of %d connections are sent to other brokers; the server stops once they have left, or after "
                "%g s (shutdownWaitTimeSeconds)",
                count,
                limit_s,
            )
            self._endpoint.go_away()
            await self._endpoint.wait_until_left(limit_s)
            figures = self._endpoint.meter.figures.items()
            log.info(
                "%d requests were answered GO_AWAY; connections that are left: %d",
                sum(each.count for key, each in figures if key.response_code == ResponseCode.GO_AWAY),
                len(self._endpoint.connections),
            )
        servers, self._servers = self._servers, []
        await close_servers(servers)
        await self._endpoint.stop("the server stops")
