"""Bound on the sends in flight (backPressureForAsyncSendNum and backPressureForAsyncSendSize)."""

import asyncio
from collections import deque

from rocketbroker.common.errors import RemotingTooMuchRequestError


class BackPressure:
    """Lets so many sends, and so many bytes of bodies, be in flight; others wait in order.

    Args:
        sends: number of sends in flight.
        size: bytes of their bodies; a larger body goes alone.
    """

    def __init__(self, sends: int, size: int) -> None:
        self._most_sends = sends
        self._most_bytes = size
        self._sends = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_acquire(self, size: int) -> bool:
        """Take the room for a send if there is some and nobody waits; ``release`` it with the same size afterwards."""
        if self._waiting or not self._fits(size):
            return False
        self._sends += 1
        self._bytes += size
        return True

    async def acquire(self, size: int, timeout_s: float) -> None:
        """Take the room for a send in turn; ``release`` it with the same size afterwards.

        Raises:
            RemotingTooMuchRequestError: There was no room in time.
        """
        if self.try_acquire(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = size, turn
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            elif not turn.cancelled():
                self.release(size)
            if not isinstance(error, TimeoutError):
                raise
            raise RemotingTooMuchRequestError(
                f"no room for a send within {timeout_s:g} s: {self._sends} sends with {self._bytes:,} bytes are in "
                "flight; send fewer at a time, or raise back_pressure_sends or back_pressure_bytes"
            ) from None

    def release(self, size: int) -> None:
        """Make room for others."""
        self._sends -= 1
        self._bytes -= size
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._sends += 1
                self._bytes += size
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._sends or (self._sends < self._most_sends and self._bytes + size <= self._most_bytes)
