"""Refusals that are answered late: one queue and one timer, with a bound for each address and one for all.

A peer chooses how many requests with wrong credentials it sends, so an answer that waits must cost next to nothing,
and their number must end somewhere. A wait is a future in a heap; whoever takes it keeps nothing of the request but
what its answer needs. Beyond ``MAX_WAITING``, or ``MAX_OF_ADDRESS`` for one address, ``hold`` returns ``None``, and the
answer leaves at once. At a remoting port each further guess then costs its sender a connection; the gRPC port cannot
close one.
"""

import asyncio
import heapq
import itertools
from collections import Counter
from typing import Final, NamedTuple, Never

from rocketbroker.auth.failed_attempts import key_of

#: Refusals that wait, of all addresses and of one.
MAX_WAITING: Final = 1_000
MAX_OF_ADDRESS: Final = 100


class _Wait(NamedTuple):
    due: float
    number: int
    key: object
    error: Exception
    future: asyncio.Future[Never]


class LateRefusals:
    """Futures that raise a refusal when its time has come."""

    def __init__(self) -> None:
        self._waits: list[_Wait] = []
        self._by_address: Counter[object] = Counter()
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of refusals that wait."""
        return len(self._waits)

    def hold(self, address: str, seconds: float, error: Exception) -> asyncio.Future[Never] | None:
        """Return a future that raises ``error`` after some time; ``None`` if too many wait.

        Args:
            address: IP address of the peer, without port.
            seconds: the time.
            error: the refusal.
        """
        key = key_of(address)
        if len(self._waits) >= MAX_WAITING or self._by_address[key] >= MAX_OF_ADDRESS:
            return None
        loop = asyncio.get_running_loop()
        wait = _Wait(loop.time() + seconds, next(self._numbers), key, error, loop.create_future())
        self._by_address[key] += 1
        heapq.heappush(self._waits, wait)
        if self._waits[0] is wait:
            self._set_timer(loop)
        return wait.future

    def stop(self) -> None:
        """Cancel what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wait in self._waits:
            wait.future.cancel()
        self._waits.clear()
        self._by_address.clear()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._waits[0].due, self._run, loop) if self._waits else None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waits and self._waits[0].due <= loop.time():
            wait = heapq.heappop(self._waits)
            self._by_address[wait.key] -= 1
            if not self._by_address[wait.key]:
                del self._by_address[wait.key]
            # A call that was cancelled has cancelled it.
            if not wait.future.done():
                wait.future.set_exception(wait.error)
        self._timer = None
        self._set_timer(loop)
