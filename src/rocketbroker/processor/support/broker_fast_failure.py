"""Rejection of sends that are too many or too late, before anything is stored.

This corresponds to org.apache.rocketmq.broker.latency.BrokerFastFailure and to the bounded queue of its send threads.
Here a send is handled as it is read, and waits in one place only: for the disk (SYNC_FLUSH) and slaves (SYNC_MASTER) to
acknowledge it. So the queue consists of the sends that are not acknowledged. A send waits for its turn while its
connection has too many of them and is not read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.histogram import Histogram
from rocketbroker.store.commitlog.put_message import Acknowledgement, StoredWait

A = TypeVar("A")


class BrokerFastFailure:
    """Counts the sends that are not acknowledged yet, and rejects those beyond the limit.

    Args:
        config: most sends that may wait, and the longest wait of a send for its turn.
        slow_s: time of a request in seconds above which it is logged; 0 for none.
    """

    def __init__(self, config: BrokerConfig, slow_s: float = 0.0) -> None:
        self._config = config
        # Of a slow request either the part before the put takes so long, or the one from there on.
        self._slow_s = slow_s / 2 or inf
        # Parts of slow sends by their answer, until it was written.
        self._slow: dict[Awaitable[Any], Callable[[float], str]] = {}
        self._put_at = 0.0
        # Sends that are stored and not answered yet.
        self.waiting = 0
        # Times from store to acknowledgement in seconds, for metrics; ``None`` while nobody asks for them.
        self.times: Histogram | None = None
        # Store times of these sends by their answer, one for those of a run, oldest first. A send that waits for no
        # slave, or for its topic too, ends before or after those beside it.
        self._since: dict[asyncio.Future[Any], float] = {}

    def parts_of(self, answer: Awaitable[Any]) -> Callable[[float], str] | None:
        """Return ``SendParts.text`` of a slow send while its answer is written, ``None`` for any other."""
        return self._slow.get(answer)

    def runtime_info(self) -> dict[str, str]:
        """Return the queue of sends for GET_BROKER_RUNTIME_INFO, under RocketMQ's keys."""
        head_ms = (monotonic() - next(iter(self._since.values()))) * 1000 if self._since else 0
        return {
            "sendThreadPoolQueueSize": str(self.waiting),
            "sendThreadPoolQueueCapacity": str(self._config.send_thread_pool_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(int(head_ms)),
        }

    def check(self, connection: Connection) -> None:
        """Admit a send of a connection.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many wait or it has waited too long; clients try another broker.
        """
        self.begin_put()
        config = self._config
        capacity = config.send_thread_pool_queue_capacity
        if self.waiting >= capacity:
            raise _busy(
                f"[OVERLOAD]system busy, start flow control for a while: {self.waiting} sends are not acknowledged "
                f"yet; the limit is {capacity} (sendThreadPoolQueueCapacity)"
            )
        waited_ms = int(connection.waited_s * 1000)
        limit_ms = config.wait_time_mills_in_send_queue
        if waited_ms >= limit_ms and config.broker_fast_failure_enable:
            raise _busy(
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
                f"size of queue: {self.waiting}; the limit is {limit_ms} ms (waitTimeMillsInSendQueue)"
            )

    def begin_put(self) -> None:
        """Note the start of a put that was not checked; ``answer_when_acknowledged`` follows before others run."""
        self._put_at = monotonic()

    def has_room(self, sends: int) -> bool:
        """Return true if so many more sends may wait; their put begins now."""
        self.begin_put()
        return self.waiting + sends <= self._config.send_thread_pool_queue_capacity

    def answer_when_acknowledged(
        self, wait: StoredWait, answer: Callable[[Acknowledgement], A], sends: int = 1
    ) -> asyncio.Future[A]:
        """Return the answer after the wait; the sends count as waiting until then.

        Args:
            wait: the wait for a stored message, or for those of a run.
            answer: function that returns the answer for the outcome; not called after the future was cancelled.
            sends: number of sends that are answered.
        """
        loop = asyncio.get_running_loop()
        self.waiting += sends
        future: asyncio.Future[A] = loop.create_future()
        self._since[future] = stored_at = monotonic()
        wait(partial(self._acknowledged, future, answer, sends, wait, stored_at - self._put_at))
        return future

    def _acknowledged(
        self,
        future: asyncio.Future[A],
        answer: Callable[[Acknowledgement], A],
        sends: int,
        wait: StoredWait,
        put_s: float,
        outcome: Acknowledgement,
    ) -> None:
        self.waiting -= sends
        since, now = self._since.pop(future), monotonic()
        if self.times is not None:
            self.times.add(now - since, sends)
        if future.done():
            return
        future.set_result(answer(outcome))
        if put_s + now - since > self._slow_s:
            parts = SendParts(put_s, now - since, [(part, end - since) for part, end in wait.ends(now)])
            self._slow[future] = parts.text
            # After the callbacks that write the answer, which the result has just scheduled.
            future.get_loop().call_soon(self._slow.pop, future)


class SendParts(NamedTuple):
    """Parts of the time of a send in seconds: the put, and what began after it, which may go on at the same time."""

    put_s: float
    acknowledged_s: float
    parts: Sequence[tuple[str, float]]

    def text(self, seconds: float) -> str:
        """Return the text of a log line for a send that took so long in all."""
        waited_s = max(seconds - self.put_s - self.acknowledged_s, 0.0)
        parts = (("waited", waited_s), ("stored", self.put_s), *self.parts)
        return ", ".join(f"{part} {time_s:.3f} s" for part, time_s in parts)


def _busy(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
