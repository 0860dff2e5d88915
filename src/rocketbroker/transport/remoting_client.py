"""Connecting endpoint: one connection for each address, opened on first use (NettyRemotingClient)."""

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH, MAX_HEADER_LENGTH, encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command
from rocketbroker.common.errors import RemotingConnectError
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.connection_limits import ConnectionLimits
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.outgoing_requests import MAX_OPAQUE
from rocketbroker.transport.shared_writer import SharedWriter
from rocketbroker.transport.tls_transport import TlsTransport


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``; an IPv6 host may have brackets.

    Raises:
        RemotingConnectError: The port is missing or out of range.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise RemotingConnectError(f"{address!r} is not an address; use host:port, such as 127.0.0.1:9876")
    return host.strip("[]"), int(port)


_clients: WeakSet["RemotingClient"] = WeakSet()


def _mark_forked() -> None:
    for client in _clients:
        client.is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


class RemotingClient:
    """Send requests to addresses and serve the requests that arrive over the same connections.

    Args:
        routes: handlers of requests from servers, such as NOTIFY_CONSUMER_IDS_CHANGED.
        connect_timeout_s: limit of a connection attempt, in seconds.
        frame_max_length: limit of a frame's length field, in bytes.
        on_close: called when a connection is closed or lost.
        before_request: called with each request before it is sent, for example to sign it (RPCHook).
        tls: settings of TLS connections; None for plain ones.

    Attributes:
        is_forked: this process was forked from the one that has the connections.
    """

    def __init__(
        self,
        routes: dict[int, Route] | None = None,
        *,
        connect_timeout_s: float = 3.0,
        frame_max_length: int = FRAME_MAX_LENGTH,
        on_close: Callable[[Connection], None] | None = None,
        before_request: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.is_forked = False
        _clients.add(self)
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        # An answer to a batch holds the ids of all its messages in the header.
        limits = ConnectionLimits(
            frame_max_length, max_header_length=MAX_HEADER_LENGTH, max_request_body_size=frame_max_length
        )
        self._endpoint = Endpoint(
            "client", routes or {}, limits, on_close=on_close, throttles=False, before_request=before_request
        )
        self._is_watching = False
        self._is_closed = False
        self._connections: dict[str, RemotingConnection] = {}
        self._writers: dict[str, SharedWriter] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        # Time limits of the connection attempts under way.
        self._attempts: set[asyncio.Timeout] = set()

    async def connect(self, address: str) -> RemotingConnection:
        """Return the connection to an address; open one if needed.

        Raises:
            RemotingConnectError: The address does not accept connections, or this client is closed.
        """
        if self.is_forked:
            raise RemotingConnectError(
                f"connect to {address} failed: the connections belong to the process that this one was forked from; "
                "make a client after the fork"
            )
        self._check_open(address)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        async with self._locks.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = self._connections[address] = await self._open(address)
            return connection

    def is_connected(self, address: str) -> bool:
        """Return true if the connection to an address is open."""
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def _check_open(self, address: str) -> None:
        if self._is_closed:
            raise RemotingConnectError(f"connect to {address} failed: the client is closed; make a new one")

    async def _open(self, address: str) -> RemotingConnection:
        host, port = split_address(address)
        self._check_open(address)
        if not self._is_watching:
            self._is_watching = True
            self._endpoint.watch()
        loop = asyncio.get_running_loop()
        writer = SharedWriter(loop)
        attempt = asyncio.timeout(self._connect_timeout_s)
        self._attempts.add(attempt)
        try:
            async with attempt:
                connection = await self._connect(RemotingConnection(self._endpoint, writer), host, port)
        except TimeoutError:
            self._check_open(address)
            text = f"connect to {address} failed: no answer within {self._connect_timeout_s:g} s"
            raise RemotingConnectError(text) from None
        except OSError as error:
            raise RemotingConnectError(f"connect to {address} failed: {error.strerror or error}") from error
        except UnicodeError as error:
            # An empty host label, or one over 63 bytes, fails before any DNS query.
            raise RemotingConnectError(f"connect to {address} failed: {host!r} is not a host name ({error})") from error
        finally:
            self._attempts.discard(attempt)
        if self._is_closed:
            connection.close("the client stops")
        self._check_open(address)
        self._writers[address] = writer
        return connection

    async def _connect(self, connection: RemotingConnection, host: str, port: int) -> RemotingConnection:
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.create_connection(lambda: connection, host, port)
            return connection
        tls = TlsTransport(connection, self._tls, host)
        transport, _ = await loop.create_connection(lambda: tls, host, port)
        try:
            await tls.ready
        except BaseException:
            transport.abort()
            raise
        return connection

    def send_from_thread(self, address: str, command: Command) -> bool:
        """Send a one-way request from another thread while the event loop is blocked.

        Return false if there is no open connection, or the peer is behind.
        """
        writer = self._writers.get(address)
        if writer is None:
            return False
        command.opaque = next(self._endpoint.opaque) & MAX_OPAQUE
        command.flag |= FLAG_ONEWAY
        if self._endpoint.before_request is not None:
            self._endpoint.before_request(command)
        return writer.write_from_thread(encode_frame(command))

    def invoke(self, address: str, command: Command, timeout_s: float = 3.0) -> Coroutine[Any, Any, Command]:
        """Send a request and wait for its answer.

        Raises:
            RemotingConnectError: The address does not accept connections.
            RemotingSendError: The connection was lost before the answer arrived.
            RemotingTimeoutError: No answer arrived in time.
        """
        connection = self._connections.get(address)
        if connection is None or self.is_forked or not connection.is_open:
            return self._connect_and_invoke(address, command, timeout_s)
        return connection.invoke(command, timeout_s)

    async def _connect_and_invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        return await (await self.connect(address)).invoke(command, timeout_s)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a one-way request at once: the caller may block the event loop or exit.

        Raises:
            RemotingConnectError: The address does not accept connections.
        """
        connection = await self.connect(address)
        connection.send_oneway(command)
        self._writers[address].flush()

    def close_address(self, address: str) -> None:
        """Close the connection to an address, if any."""
        writer = self._writers.pop(address, None)
        if writer is not None:
            writer.flush()
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close("no longer needed")
        lock = self._locks.get(address)
        if lock is not None and not lock.locked():
            del self._locks[address]

    async def stop(self) -> None:
        """Close all connections, give up those under way, and end all tasks; do nothing in a forked process."""
        if self.is_forked:
            return
        self._is_closed = True
        for attempt in self._attempts:
            if not attempt.expired():
                attempt.reschedule(asyncio.get_running_loop().time())
        for writer in self._writers.values():
            writer.flush()
        self._writers.clear()
        self._connections.clear()
        await self._endpoint.stop("the client stops")
