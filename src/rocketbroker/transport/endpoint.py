"""State shared by all connections of one server or client: routes, number of connections, memory, turns.

A limit on each connection bounds nothing as long as strangers choose their number. So connections are counted by
address, with some kept for administrators (``ConnectionCount``); the memory of all is one account, from which the worst
is dropped (``Endpoint.hold``); and connections whose turn ended go on one by one (``Endpoint.read_later``), so that
the time until any other is served grows with the number of busy connections, never with what one of them sends.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol

from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.remoting.handler import Audience, Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.access import Admit, OnRefused, RouteTable, admit_all, is_this_machine, route_tables
from rocketbroker.transport.failed_connections import FailedConnections
from rocketbroker.transport.go_away import leaving_routes
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, SHARED_SIZE, ConnectionLimits, HeldMemory
from rocketbroker.transport.request_meter import Cause, RequestMeter

log = logging.getLogger(__name__)

_REPEAT_LOG_S = 10.0
# Connections kept for administrators, brokers and this machine: a sixteenth, and enough for some hosts with tools.
_SHARE_OF_RESERVE = 16
_MOST_RESERVED = 256


# Limits that the reason of a rejection names.
_CONNECTION_LIMITS = ("maxConnectionsPerAddress", "maxConnections", "ulimit")


def _source(address: str) -> tuple[str, bool]:
    """Return the key under which an ``ip:port`` is counted, and true for this machine.

    IPv6 addresses count by network, since one host may use all addresses of its network.
    """
    host = host_of(address).partition("%")[0]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host, False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((ip, 64), strict=False)), ip.is_loopback
        ip = ip.ipv4_mapped
    return str(ip), ip.is_loopback


def _reserve(limit: int) -> int:
    """Return how many of a number of connections are kept for trusted peers."""
    return min(limit // _SHARE_OF_RESERVE, _MOST_RESERVED)


def _kept(limit: int, *, is_trusted: bool) -> str:
    return "" if is_trusted or not _reserve(limit) else f"; {_reserve(limit)} of them are kept for administrators"


class ConnectionCount:
    """Limit on connections in total and by address; logs how many were rejected.

    Some connections are kept for trusted peers (``_reserve``), so that an administrator gets in when strangers have
    taken all others. With ``maxConnectionsPerAddress`` 0, an address of strangers may have as many connections as are
    left for strangers when it asks for one more. So one address gets half of them, two get a third each, and only a
    dozen or more together fill the server. Trusted peers may take all.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limit = limits.max_connections
        self._cause = limits.max_connections_cause
        self._address_limit = limits.max_connections_per_address
        self._max_descriptor = limits.max_descriptor
        self._count = 0
        self._by_source: Counter[str] = Counter()
        self._rejections = RefusalLog(log)
        self.rejected: Counter[str] = Counter()

    def enter(self, address: str, descriptor: int = -1, *, is_trusted: bool = False) -> bool:
        """Count a connection from ``ip:port``; return false if a limit is reached and it must be closed."""
        source, is_local = _source(address)
        reason = self._why_full(source, descriptor, is_trusted=is_trusted or is_local)
        if reason:
            self.rejected[next((each for each in _CONNECTION_LIMITS if each in reason), _CONNECTION_LIMITS[-1])] += 1
            self._rejections.add(f"connection from {address} rejected: {reason}")
            return False
        self._count += 1
        self._by_source[source] += 1
        return True

    def _why_full(self, source: str, descriptor: int, *, is_trusted: bool) -> str:
        """Return the reason why an address gets no further connection, or an empty text."""
        left = self._left(self._limit, self._count, is_trusted=is_trusted)
        # The kernel assigns the lowest free descriptor, so all lower ones are in use.
        left_files = self._left(self._max_descriptor, descriptor, is_trusted=is_trusted)
        if left_files <= 0:
            return (
                f"{self._count:,} connections are open, and the process may open only {self._max_descriptor:,} files, "
                f"so that the store keeps its reserve (ulimit -n){_kept(self._max_descriptor, is_trusted=is_trusted)}"
            )
        if left <= 0:
            kept = _kept(self._limit, is_trusted=is_trusted)
            return f"{self._count:,} connections are open and the limit is {self._limit:,} ({self._cause}){kept}"
        held, limit = self._by_source[source], self._address_limit
        if limit and held >= limit:
            return f"{limit} connections are open from {source}, the limit of each address (maxConnectionsPerAddress)"
        if not limit and not is_trusted and held >= min(left, left_files):
            return (
                f"{held} connections are open from {source}, which may have as many as are left of maxConnections "
                "and ulimit -n; set maxConnectionsPerAddress to give each address a fixed number"
            )
        return ""

    @staticmethod
    def _left(limit: int, used: int, *, is_trusted: bool) -> float:
        return limit - (0 if is_trusted else _reserve(limit)) - used if limit else inf

    def leave(self, address: str) -> None:
        """Uncount a closed connection."""
        source, _ = _source(address)
        self._count -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]


def rejected_by_cause(count: ConnectionCount, failed: FailedConnections) -> Mapping[str, int]:
    """Return the number of connections of a port that were rejected, by the setting or ``failedConnections``."""
    return {**count.rejected, "failedConnections": failed.rejected} if failed.rejected else count.rejected


_CLOSE_TIMEOUT_S = 1.0
_SCAN_S = 10.0
# Lower bound, in seconds, for the time that memory has been held.
_MOMENT_S = 0.01


class EndpointConnection(Connection, Protocol):
    """Connection as its endpoint sees it."""

    def admit(self) -> None:
        """Choose the routes for the peer's audience."""

    @property
    def is_open(self) -> bool:
        """True if writes still reach the peer."""

    @property
    def memory(self) -> HeldMemory:
        """Memory held until a later event."""

    def check(self, now: float) -> None:
        """Close the connection if its peer is late or idle."""

    def drop(self, reason: str) -> None:
        """Close at once and free its memory; unsent data is lost."""

    def drop_waiting(self) -> None:
        """Drop the queued requests."""

    def stop_reading(self) -> None:
        """Pause reading: too many requests are pending."""

    def read_again(self) -> None:
        """Handle what was read before a pause and resume reading, unless a reason for the pause remains."""


def _no_parts(_answer: object) -> None:
    pass


class EndpointHooks(NamedTuple):
    """Callables by which a server or a client takes part in the work of its endpoint.

    Attributes:
        on_batch_end: called after the last frame of each read event, always before answers are written.
        on_close: called when a connection is closed or lost.
        admit: chooses the audience of a peer by the peer's host and the host it connected to.
        is_trusted: returns true for a peer that may use the connections kept for administrators, by the same hosts.
        on_refused: called with a request that protected mode refuses: the connection, the request code and the reason.
        before_request: called with each request of this side before it is encoded.
        parts_of: returns where the time of a slow answer went, by the future that a handler returned.
    """

    on_batch_end: Callable[[], None] | None = None
    on_close: Callable[[Connection], None] | None = None
    admit: Admit = admit_all
    is_trusted: Callable[[str, str], bool] = is_this_machine
    on_refused: OnRefused | None = None
    before_request: Callable[[Command], None] | None = None
    parts_of: Callable[[Any], Cause | None] = _no_parts


class Endpoint:
    """State shared by all connections of one server or client.

    Args:
        name: name of its tasks.
        routes: handlers by request code.
        limits: limits on peers.
        hooks: callables of the server or client.
        throttles: stop reading from a peer that is slow to take its answers. For servers only: two peers that both
            stop reading would deadlock.
        failed: takes failed connections; ``None`` for an account of its own.
    """

    def __init__(
        self,
        name: str,
        routes: dict[int, Route],
        limits: ConnectionLimits = DEFAULT_LIMITS,
        hooks: EndpointHooks = EndpointHooks(),  # noqa: B008 - a tuple never changes
        *,
        throttles: bool = True,
        failed: FailedConnections | None = None,
    ) -> None:
        self.hooks = hooks
        self._routes = routes
        self._tables = route_tables(routes, hooks.on_refused)
        self.meter = RequestMeter(routes, limits.slow_request_s)
        self.throttles = throttles
        self.limits = limits
        self.frame_max_length = limits.frame_max_length
        self.tasks = TaskOwner(name)
        self.connections: set[EndpointConnection] = set()
        self.opaque = itertools.count(1)
        self.shared_buffer = memoryview(bytearray(SHARED_SIZE))
        self.held_bytes = 0
        # Connections whose turn ended before their requests did, in order.
        self._to_read: dict[EndpointConnection, None] = {}
        self._all_gone = asyncio.Event()
        self._batch_failure = ""
        self._batch_failure_told = 0.0
        self._count = ConnectionCount(limits)
        self.failed = failed or FailedConnections()

    @property
    def rejected_connections(self) -> Mapping[str, int]:
        """Number of rejected connections by cause."""
        return rejected_by_cause(self._count, self.failed)

    def gone(self, connection: EndpointConnection) -> None:
        """Remove a closed connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._count.leave(connection.remote_address)
            self._to_read.pop(connection, None)
        if not self.connections:
            self._all_gone.set()
        if self.hooks.on_close is not None:
            self.hooks.on_close(connection)

    def read_later(self, connection: EndpointConnection) -> None:
        """Let a connection go on with the rest of its requests in a later turn of the event loop.

        Each turn of the loop serves one such connection, in order, and looks for new events after it. The first reads
        of many connections may come in one turn nevertheless.
        """
        if not self._to_read:
            asyncio.get_running_loop().call_soon(self._read_next)
        self._to_read[connection] = None

    def _read_next(self) -> None:
        connection = next(iter(self._to_read), None)
        if connection is None:
            return
        del self._to_read[connection]
        # Before the requests: a handler that raises must not leave the other connections unread.
        if self._to_read:
            asyncio.get_running_loop().call_soon(self._read_next)
        connection.read_again()

    def watch(self) -> None:
        """Start the periodic check for late and idle peers."""
        self.tasks.every(_SCAN_S, self._check, "idle-scan")

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now)

    def hold(self, change: int) -> None:
        """Add a change of held memory; above ``max_held_bytes``, drop the worst connection.

        The worst connection has the highest product of bytes and seconds held, so that a peer with progress survives.
        """
        self.held_bytes += change
        limit = self.limits.max_held_bytes
        while change > 0 and self.held_bytes > limit:
            now = asyncio.get_running_loop().time()
            held = [each for each in self.connections if each.is_open and each.memory.bytes]
            if not held:
                return
            worst = max(held, key=lambda each: each.memory.bytes * (now - each.memory.since + _MOMENT_S))
            worst.drop(
                f"the connections hold {self.held_bytes:,} bytes, above the limit of {limit:,} (maxHeldBytes); "
                f"this one has held {worst.memory.bytes:,} for {now - worst.memory.since:.1f} s"
            )

    def end_batch(self) -> None:
        """Call the batch-end hook; log its error, since connection and answers must not suffer from it."""
        if self.hooks.on_batch_end is not None:
            try:
                self.hooks.on_batch_end()
            except Exception as error:  # noqa: BLE001 - logged
                self._log_failed_batch(error)
            else:
                self._batch_failure = ""

    def _log_failed_batch(self, error: Exception) -> None:
        """Log an error when it appears, then once in ten seconds: there may be thousands of batches."""
        failure, now = f"{type(error).__name__}: {error}", time.monotonic()
        if failure != self._batch_failure or now >= self._batch_failure_told + _REPEAT_LOG_S:
            self._batch_failure, self._batch_failure_told = failure, now
            log.error("the hook at the end of a batch of requests failed", exc_info=error)

    def admitted(self, transport: asyncio.BaseTransport) -> tuple[Audience, RouteTable]:
        """Return the audience of a peer and its routes, by the addresses of both ends of its connection."""
        audience = self.hooks.admit(*_hosts(transport))
        return audience, self._tables[audience]

    def readmit(self) -> None:
        """Choose the audience of every open connection again, after a change of settings."""
        for connection in self.connections:
            connection.admit()

    def go_away(self) -> None:
        """Answer GO_AWAY to further requests that others can serve, of peers that know it; serve all else as before.

        Such a peer asks for a new route and sends elsewhere, before its connection is closed under its requests.
        """
        self._tables = route_tables(leaving_routes(self._routes), self.hooks.on_refused)
        self.readmit()

    async def wait_until_left(self, timeout_s: float) -> None:
        """Wait until all peers have left, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()

    def accept(self, connection: EndpointConnection, transport: asyncio.BaseTransport) -> bool:
        """Register a connection; return false if there are too many, in total or from its address."""
        sock = transport.get_extra_info("socket")
        is_trusted = self.hooks.is_trusted(*_hosts(transport))
        if not self._count.enter(connection.remote_address, sock.fileno() if sock else -1, is_trusted=is_trusted):
            return False
        self.connections.add(connection)
        return True

    async def stop(self, reason: str) -> None:
        """Cancel open requests and close all connections; a peer gets one second to take its last answers."""
        for connection in list(self.connections):
            connection.drop_waiting()
        try:
            await self.tasks.stop()
            for connection in list(self.connections):
                connection.close(reason)
            await self.wait_until_left(_CLOSE_TIMEOUT_S)
        finally:
            for connection in list(self.connections):
                connection.drop(reason)


def _hosts(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """Return the host of the peer and the host that it connected to."""
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return peer[0] if peer else "", own[0] if own else ""
