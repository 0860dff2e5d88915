"""Concurrent sends at a set rate, in order within a lane: the engine of the sink and of replays."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from rocketbroker.analytics.spark.broker_queues import may_pass
from rocketbroker.client.core.errors import SendFailedError
from rocketbroker.client.core.message import Message, SendResult, SendStatus
from rocketbroker.client.producer.message_sender import BackPressure, QueueSelector
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError

T = TypeVar("T")

#: Further tries of a send. Their pauses are 43 s in all, so that a broker may restart.
RETRY_TIMES: Final = 10
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0

# Items per lane that are accepted and not yet sent, on the average over all lanes.
_ACCEPTED: Final = 5
# After slow answers, items of up to this many seconds are sent without a pause.
_MADE_UP_S: Final = 1.0


class Sender(Protocol):
    """Sender of messages, such as ``client.producer.Producer``."""

    async def send(self, message: Message, queue: QueueSelector | None) -> SendResult:
        """Send a message to the selected queue, or to any; return the broker's acknowledgement."""


async def send_until_ok(
    sender: Sender, message: Message, queue: QueueSelector | None, retry_times: int, *, accepts_stored: bool = False
) -> SendStatus:
    """Send until a broker acknowledges with SEND_OK, at most ``1 + retry_times`` times, and return the status.

    Any other status means that the message is stored, and may be lost with the broker: it is sent again unless
    ``accepts_stored``. So is one whose error may pass. Each try may leave a copy.

    Raises:
        RocketBrokerError: error of the last try, or one that does not pass.
    """
    pause_s = _FIRST_PAUSE_S
    for left in reversed(range(1 + retry_times)):
        try:
            result = await sender.send(message, queue)
            if accepts_stored or result.send_status is SendStatus.SEND_OK:
                return result.send_status
            raise SendFailedError(
                f"broker {result.message_queue.broker_name} stored the message, but answered "
                f"{result.send_status.name}: it may be lost with the broker; look at the broker's disk and slaves",
                (),
            )
        except RocketBrokerError as error:
            # The client raises SendFailedError for what another broker, or a later try, may cure.
            if not left or not (isinstance(error, SendFailedError) or may_pass(error)):
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    raise AssertionError("the last try returns or raises")


class SendLanes(Generic[T]):
    """Sends items concurrently; those of one lane one after the other, in order.

    The next item of a lane waits for the acknowledgement of the one before: a broker may store requests in another
    order than they arrive in. After the first failure nothing is sent any more, or items would overtake the failed one.

    Args:
        send: sends one item.
        clock: paces the sends.
        lanes: number of items in flight.
        rate: items per second, 0 for no limit.
        most_bytes: bytes of items that are accepted and not yet sent; a larger item goes alone.

    Attributes:
        failure: first error of a send, else that of ``deal``.
        unsent: items that were not acknowledged because of an error, the failed one first.
    """

    def __init__(
        self, send: Callable[[T], Awaitable[None]], clock: Clock, *, lanes: int, rate: float, most_bytes: int
    ) -> None:
        self._send = send
        self._clock = clock
        self._interval = 1 / rate if rate else 0.0
        self._due: float | None = None
        self._pressure = BackPressure(lanes * _ACCEPTED, most_bytes)
        # Bounded together, by the above.
        self._lanes: list[asyncio.Queue[tuple[T, int] | None]] = [asyncio.Queue() for _ in range(lanes)]
        self.failure: Exception | None = None
        self.unsent: list[T] = []

    async def run(self, deal: Coroutine[Any, Any, None]) -> None:
        """Run ``deal``, which calls ``put`` for each item until ``failure`` is set; return after the last answer.

        If ``deal`` raises, items that it has put before are sent.
        """
        error: Exception | None = None
        async with asyncio.TaskGroup() as sending:
            for lane in self._lanes:
                sending.create_task(self._send_all(lane))
            try:
                await deal
            except Exception as raised:  # noqa: BLE001 - kept as the failure
                error = raised
            for lane in self._lanes:
                lane.put_nowait(None)
        self.failure = self.failure or error

    async def put(self, item: T, lane: int, size: int) -> None:
        """Wait until an item of ``size`` bytes is due and has room, and pass it to a lane; any number is one."""
        await self._wait_until_due()
        await self._pressure.acquire(size, math.inf)
        self._lanes[lane % len(self._lanes)].put_nowait((item, size))

    async def _wait_until_due(self) -> None:
        """Pause between items; the first one is due at once.

        A delay is made up for, but by at most ``_MADE_UP_S``: a long wait for items is not followed by a burst.
        """
        if not self._interval:
            return
        now = self._clock.monotonic()
        due = now if self._due is None else max(self._due, now - _MADE_UP_S)
        if due > now:
            await asyncio.sleep(due - now)
        self._due = due + self._interval

    async def _send_all(self, lane: "asyncio.Queue[tuple[T, int] | None]") -> None:
        """Empty the lane, also after a failure: ``put`` waits for its room."""
        while (entry := await lane.get()) is not None:
            item, size = entry
            if self.failure is not None or not await self._is_sent(item):
                self.unsent.append(item)
            self._pressure.release(size)

    async def _is_sent(self, item: T) -> bool:
        try:
            await self._send(item)
        except Exception as error:  # noqa: BLE001 - the first one is kept: later ones follow from it
            self.failure = self.failure or error
            return False
        return True
