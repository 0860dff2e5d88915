"""Bounds of TLS handshakes: how many run at once, and how many a failing address may begin.

A handshake costs a server up to a millisecond of CPU, and a peer some bytes. So peers that only begin handshakes, or
fail them a thousand times a second, would take the event loop from those that are served. Three bounds hold, whoever
connects:

- At most ``MAX_RUNNING`` handshakes run, and an address has no more of them than it leaves free for others, so that
  peers which begin and never go on leave room.
- A failing address (``failed_connections``) begins one at a time, every ``PACE_S``. So a thousand failures a second
  cost the CPU of ten.
- What may not begin waits with the bytes it has sent: ``MAX_WAITING`` in all, ``MAX_WAITING_OF_ADDRESS`` of an address.
  Beyond that a connection is closed.

A client behind the address of one that fails waits its turn, too, but only to connect: what is connected is not slowed.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

from rocketbroker.common.address_debts import AddressDebts
from rocketbroker.transport.failed_connections import FailedConnections

MAX_RUNNING: Final = 256
MAX_WAITING: Final = 1_024
MAX_WAITING_OF_ADDRESS: Final = 64
#: Seconds between two handshakes of a failing address.
PACE_S: Final = 0.1


class Ticket:
    """Place of one handshake, running or waiting; ``end`` gives it back."""

    __slots__ = ("_limits", "begin", "is_ended", "is_running", "key")

    def __init__(self, limits: "HandshakeLimits", key: bytes, begin: Callable[[], None]) -> None:
        self._limits = limits
        self.key = key
        self.begin = begin
        self.is_running = self.is_ended = False

    def end(self, *, failed: bool) -> None:
        """Give the place back, once; a handshake that waits does not begin any more."""
        if not self.is_ended:
            self.is_ended = True
            self._limits.ended(self, failed=failed)


class HandshakeLimits:
    """Places of handshakes on one port.

    Args:
        failed: takes those that failed, and knows the addresses that do.
        time: a clock that never goes back, in seconds.

    Attributes:
        begun: number of handshakes that began.
        waiting: number of those that wait.
    """

    def __init__(self, failed: FailedConnections, time: Callable[[], float] = time.monotonic) -> None:
        self._failed = failed
        self._time = time
        self.begun = self.waiting = 0
        self._running = 0
        self._running_of: Counter[bytes] = Counter()
        self._queues: OrderedDict[bytes, deque[Ticket]] = OrderedDict()
        # A debt of one, which is gone after PACE_S, for each handshake of a failing address.
        self._begun = AddressDebts(1 / PACE_S, 1)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def ask(self, key: bytes, begin: Callable[[], None]) -> Ticket | None:
        """Return a place for a handshake, ``None`` if too many wait.

        Args:
            key: key of the peer's address.
            begin: called when a place that waits may be used; one that ``is_running`` is used at once.
        """
        ticket, now = Ticket(self, key, begin), self._time()
        at = self._begins_at(key, now)
        if at <= now and key not in self._queues:
            self._start(ticket, now)
            return ticket
        queue = self._queues.get(key)
        if self.waiting >= MAX_WAITING or (queue is not None and len(queue) >= MAX_WAITING_OF_ADDRESS):
            return None
        self._queues.setdefault(key, deque()).append(ticket)
        self.waiting += 1
        self._look_at(at)
        return ticket

    def ended(self, ticket: Ticket, *, failed: bool) -> None:
        """Take a place back; see ``Ticket.end``."""
        key = ticket.key
        if ticket.is_running:
            self._running -= 1
            self._running_of[key] -= 1
            if not self._running_of[key]:
                del self._running_of[key]
            if failed:
                self._failed.add(key)
        else:
            self._queues[key].remove(ticket)
            self.waiting -= 1
            if not self._queues[key]:
                del self._queues[key]
        if self._queues:
            # Not now: a handshake that begins may end at once, and so on.
            self._look_at(0.0)

    def _look_at(self, when: float) -> None:
        """Look for handshakes that may begin at a time of the event loop, or before."""
        if when >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_later(max(when - self._time(), 0.0), self._begin_waiting)

    def _begins_at(self, key: bytes, now: float) -> float:
        """Return when a handshake of an address may begin: now, later, or never before another one ends."""
        held = self._running_of.get(key, 0)
        if held >= MAX_RUNNING - self._running:
            return float("inf")
        if not self._failed.is_failing(key):
            return now
        return float("inf") if held else now + self._begun.of(key, now) * PACE_S

    def _start(self, ticket: Ticket, now: float) -> None:
        ticket.is_running = True
        self.begun += 1
        self._running += 1
        self._running_of[ticket.key] += 1
        if self._failed.is_failing(ticket.key):
            self._begun.add(ticket.key, now)

    def _begin_waiting(self) -> None:
        """Begin the handshakes that may, one of each address, and look again when the next one may."""
        self._timer, self._timer_at = None, float("inf")
        now, next_at = self._time(), float("inf")
        begins: list[Callable[[], None]] = []
        for key in list(self._queues):
            at = self._begins_at(key, now)
            if at > now:
                next_at = min(next_at, at)
                continue
            queue = self._queues[key]
            ticket = queue.popleft()
            self.waiting -= 1
            del self._queues[key]
            if queue:
                # Behind the other addresses.
                self._queues[key] = queue
                next_at = now
            self._start(ticket, now)
            begins.append(ticket.begin)
        self._look_at(next_at)
        for begin in begins:
            begin()
