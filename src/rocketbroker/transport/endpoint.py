"""What the connections of one server or one client share."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.access import Admit, RouteTable, admit_all, route_tables
from rocketbroker.transport.connection_count import ConnectionCount
from rocketbroker.transport.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.receive_buffer import SHARED_SIZE

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 1.0
_REPEAT_LOG_S = 10.0
_SCAN_S = 10.0
# What has been held for no time yet counts as held for so long.
_MOMENT_S = 0.01


class EndpointConnection(Connection, Protocol):
    """A connection as its endpoint knows it."""

    def admit(self) -> None:
        """Settle what the peer may send."""

    @property
    def is_open(self) -> bool:
        """Tell whether writes still reach the peer."""

    @property
    def held_bytes(self) -> int:
        """Memory that it holds until a later event."""

    @property
    def held_since(self) -> float:
        """Time of its last progress since it holds memory."""

    def check(self, now: float) -> None:
        """End it when its peer is late or idle."""

    def drop(self, reason: str) -> None:
        """Close at once and free what is held; what was not sent is lost."""

    def drop_waiting(self) -> None:
        """Forget the requests whose turn has not come."""


class Endpoint:
    """What all connections of a server or of a client share.

    Args:
        routes: handlers by request code.
        limits: what the peers may take.
        on_batch_end: called after the last frame of each read event, and always before answers are written.
        on_close: called when a connection is gone.
        throttles: whether a peer that takes its answers slowly is not heard until it catches up. Only for servers: two
            peers that both stop reading while their writes wait would wait for each other for ever.
        admit: says what a peer may send, by the hosts of its own and our end of the connection.
    """

    def __init__(
        self,
        name: str,
        routes: dict[int, Route],
        limits: ConnectionLimits = DEFAULT_LIMITS,
        on_batch_end: Callable[[], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        throttles: bool = True,
        admit: Admit = admit_all,
    ) -> None:
        self._admit = admit
        self._tables = route_tables(routes)
        self.throttles = throttles
        self.limits = limits
        self.frame_max_length = limits.frame_max_length
        self.on_batch_end = on_batch_end
        self.on_close = on_close
        self.tasks = TaskOwner(name)
        self.connections: set[EndpointConnection] = set()
        self.opaque = itertools.count(1)
        self.shared_buffer = memoryview(bytearray(SHARED_SIZE))
        self.held_bytes = 0
        self._all_gone = asyncio.Event()
        self._batch_failure = ""
        self._batch_failure_told = 0.0
        self._count = ConnectionCount(limits)

    def gone(self, connection: EndpointConnection) -> None:
        """Forget a connection that was lost."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._count.leave(connection.remote_address)
        if not self.connections:
            self._all_gone.set()
        if self.on_close is not None:
            self.on_close(connection)

    def watch(self) -> None:
        """Look for late and idle peers from now on."""
        self.tasks.every(_SCAN_S, self._check, "idle-scan")

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now)

    def hold(self, change: int) -> None:
        """Account for memory that a connection holds or has freed; over the limit the worst of them is dropped.

        The worst holds most for longest, so that a peer which makes progress is not dropped for others' sake.
        """
        self.held_bytes += change
        limit = self.limits.max_held_bytes
        while change > 0 and self.held_bytes > limit:
            now = asyncio.get_running_loop().time()
            held = [each for each in self.connections if each.is_open and each.held_bytes]
            if not held:
                return
            worst = max(held, key=lambda each: each.held_bytes * (now - each.held_since + _MOMENT_S))
            worst.drop(
                f"the connections hold {self.held_bytes:,} bytes, the limit is {limit:,} (maxHeldBytes); "
                f"this one holds {worst.held_bytes:,} since {now - worst.held_since:.1f} s"
            )

    def end_batch(self) -> None:
        """Call the batch-end hook; its error is logged, and ends neither the connection nor the answers."""
        if self.on_batch_end is not None:
            try:
                self.on_batch_end()
            except Exception as error:  # noqa: BLE001 - logged
                self._log_failed_batch(error)
            else:
                self._batch_failure = ""

    def _log_failed_batch(self, error: Exception) -> None:
        """Log an error when it appears and every ten seconds while it stays: there may be thousands of batches."""
        failure, now = f"{type(error).__name__}: {error}", time.monotonic()
        if failure != self._batch_failure or now >= self._batch_failure_told + _REPEAT_LOG_S:
            self._batch_failure, self._batch_failure_told = failure, now
            log.error("the end of a batch failed", exc_info=error)

    def table_for(self, transport: asyncio.BaseTransport) -> RouteTable:
        """The routes of a peer, by the addresses of both ends of its connection."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        return self._tables[self._admit(peer[0] if peer else "", own[0] if own else "")]

    def readmit(self) -> None:
        """Settle anew what the peers of open connections may send."""
        for connection in self.connections:
            connection.admit()

    def accept(self, connection: EndpointConnection, descriptor: int) -> bool:
        """Take one more connection; false when there are too many, in all or from its address."""
        if not self._count.enter(connection.remote_address, descriptor):
            return False
        self.connections.add(connection)
        return True

    async def stop(self, reason: str) -> None:
        """End the tasks of open requests and close all connections; a peer has a second to take its last answers."""
        for connection in list(self.connections):
            connection.drop_waiting()
        await self.tasks.stop()
        for connection in list(self.connections):
            connection.close(reason)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                while self.connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.drop(reason)
