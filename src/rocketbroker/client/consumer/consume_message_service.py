"""Order in which held messages are given out, and what follows from their outcome.

``ConsumeMessageConcurrentlyService`` gives them out as they arrive, ``ConsumeMessageOrderlyService`` one at a time for
each queue (org.apache.rocketmq.client.impl.consumer).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Generic, TypeVar

from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import Consumption, ProcessQueue
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from rocketbroker.client.consumer.send_message_back import DEAD_LETTER_LEVEL, SendMessageBack
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

# Messages that are taken before the event loop gets a turn, in which it reads the answers to pulls.
_TAKEN_IN_A_ROW = 64
# Seconds before a message that could not be sent back is consumed again here.
_LOCAL_RETRY_S = 5.0
# Delay level of a message that exceeded consumeTimeout: 10 s by default.
_EXPIRED_LEVEL = 3
# An unexpected error, such as one of an application's offset store. The message would stay under way otherwise, and the
# offset of its queue before it, until the consumer is closed.
_NOT_SETTLED = "consumer group %s: %r was not settled; it is consumed again"


T = TypeVar("T")


class ConsumeMessageService(ABC, Generic[T]):
    """Gives out the messages of all queues of a consumer, as entries get ready.

    Args:
        name: name of its tasks.
        group: the consumer group that messages show.
        offsets: store of the consumed offsets.
        send_back: gives failed messages back; None for broadcasting, where they are dropped.
        clock: source of time.
    """

    def __init__(
        self, name: str, group: str, offsets: OffsetStore, send_back: SendMessageBack | None, clock: Clock
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._send_back = send_back
        self._clock = clock
        self._ready: deque[T] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wakes = False
        self._taken_in_a_row = 0
        self._closed = False
        self._tasks = TaskOwner(name)

    @abstractmethod
    def put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        """Add messages that a queue now holds."""

    async def take(self) -> ReceivedMessage | None:
        """Wait for the next message and start its consumption; return None once closed."""
        try:
            while not self._closed:
                if self._taken_in_a_row >= _TAKEN_IN_A_ROW:
                    self._taken_in_a_row = 0
                    await asyncio.sleep(0)
                while self._ready:
                    self._taken_in_a_row += 1
                    if (received := self._begin(self._ready.popleft())) is not None:
                        return received
                if not self._closed:
                    await self._arrival()
        except asyncio.CancelledError:
            if self._ready:
                self._wake(1)  # in place of this task
            raise
        return None

    async def _arrival(self) -> None:
        """Wait for an entry, or for the close."""
        self._taken_in_a_row = 0
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def _add(self, entries: Iterable[T]) -> None:
        """Give out more entries."""
        self._ready.extend(entries)
        if self._waiting and not self._wakes:
            self._wakes = True
            asyncio.get_running_loop().call_soon(self._wake_first)

    def _wake_first(self) -> None:
        """Wake one waiter, then the others if it leaves entries: a handler that never waits takes them all."""
        if self._ready:
            self._wake(1)
        asyncio.get_running_loop().call_soon(self._wake_others)

    def _wake_others(self) -> None:
        self._wakes = False
        self._wake(len(self._ready))

    def _wake(self, number: int) -> None:
        while number and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its task is cancelled
                waiter.set_result(None)
                number -= 1

    @abstractmethod
    def _begin(self, entry: T) -> ReceivedMessage | None:
        """Start the consumption of an entry's message, if it still has one."""

    @abstractmethod
    def consume_again(self, received: ReceivedMessage) -> None:
        """Consume a message again a little later, here, since its outcome could not be settled."""

    async def expire(self, queues: Iterable[ProcessQueue], started_before: float) -> None:
        """Give up messages whose consumption began before a time."""
        for held in queues:
            for consumption in held.started_before(started_before):
                if consumption.outcome is None:  # else it ended while another one was sent back
                    await self._expire(held, consumption)

    async def _expire(self, held: ProcessQueue, consumption: Consumption) -> None:
        log.warning("message %s of %s exceeds consumeTimeout", consumption.message_ext.offset_msg_id, held.queue)

    def close(self) -> None:
        """Give out no more messages: all waiters return None."""
        self._closed = True
        self._ready.clear()
        self._wake(len(self._waiting))

    async def stop(self) -> None:
        """End pending retries and suspensions."""
        await self._tasks.stop()

    def _remove(self, held: ProcessQueue, message: MessageExt) -> None:
        if held.remove(message):
            self._offsets.update(held.queue, held.commit_offset)


class ConsumeMessageConcurrentlyService(ConsumeMessageService[tuple[ProcessQueue, MessageExt]]):
    """Messages in the order of their arrival, any number at a time.

    Args:
        group: the consumer group that messages show.
        offsets: store of the consumed offsets.
        send_back: gives failed messages back; None for broadcasting, where they are dropped.
        clock: source of time.
    """

    def __init__(self, group: str, offsets: OffsetStore, send_back: SendMessageBack | None, clock: Clock) -> None:
        super().__init__("consume-message-concurrently", group, offsets, send_back, clock)

    def put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        """Give out messages after those that arrived before."""
        self._add(zip(repeat(held), messages))

    def _begin(self, entry: tuple[ProcessQueue, MessageExt]) -> ReceivedMessage | None:
        held, message = entry
        if message not in held:
            return None
        received = ReceivedMessage(message, held, self._group, self._settle)
        held.start(received, self._clock.monotonic())
        return received

    async def _expire(self, held: ProcessQueue, consumption: Consumption) -> None:
        """Send back a message that took too long, so that the offset of its queue can advance."""
        await super()._expire(held, consumption)
        await consumption.retry_later(delay_level=_EXPIRED_LEVEL)

    async def _settle(self, received: ReceivedMessage, outcome: Outcome, delay_level: int) -> None:
        held, message = received.process_queue, received.message_ext
        try:
            if outcome is not Outcome.ACKNOWLEDGED and message in held:
                if self._send_back is None:
                    log.warning("broadcasting: message %s is not consumed again", received.msg_id)
                elif not await self._send_back.send_back(held.queue, message, delay_level):
                    self.consume_again(received)
                    return
            self._remove(held, message)
        except Exception:
            log.exception(_NOT_SETTLED, self._group, received)
            self.consume_again(received)

    def consume_again(self, received: ReceivedMessage) -> None:
        """Consume a message that is still held again after some seconds."""
        held, message = received.process_queue, received.message_ext
        if message in held:
            message.reconsume_times += 1
            held.suspend(message)
            self._tasks.start(self._put_again(held, message), "retry")

    async def _put_again(self, held: ProcessQueue, message: MessageExt) -> None:
        await asyncio.sleep(_LOCAL_RETRY_S)
        self.put(held, [message])


class ConsumeMessageOrderlyService(ConsumeMessageService[ProcessQueue]):
    """Messages of each queue in order, one at a time; a failed one suspends its queue.

    Args:
        group: the consumer group that messages show.
        offsets: store of the consumed offsets.
        send_back: makes dead letters; None for broadcasting, where failed messages are dropped.
        clock: source of time.
        suspend_s: seconds before a failed message is consumed again (suspendCurrentQueueTimeMillis).
        max_reconsume_times: retries before a message becomes a dead letter; -1 for no limit.
        is_locked: returns false if the lock of a queue has expired.
    """

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        send_back: SendMessageBack | None,
        clock: Clock,
        suspend_s: float,
        max_reconsume_times: int,
        is_locked: Callable[[ProcessQueue], bool],
    ) -> None:
        super().__init__("consume-message-orderly", group, offsets, send_back, clock)
        self._suspend_s = suspend_s
        self._max_reconsume_times = max_reconsume_times
        self._is_locked = is_locked
        # Queues that are ready, suspended, or have a message under way.
        self._active: set[ProcessQueue] = set()

    def put(self, held: ProcessQueue, _messages: Iterable[MessageExt]) -> None:
        """Let a queue give out its next message."""
        if held not in self._active and len(held) and not held.dropped:
            self._active.add(held)
            self._add((held,))

    def _begin(self, entry: ProcessQueue) -> ReceivedMessage | None:
        message = None if entry.dropped else entry.first
        if message is None:
            self._active.discard(entry)
        elif not self._is_locked(entry):
            self._later(entry)
        else:
            received = ReceivedMessage(message, entry, self._group, self._settle)
            entry.start(received, self._clock.monotonic())
            return received
        return None

    async def _settle(self, received: ReceivedMessage, outcome: Outcome, _delay_level: int) -> None:
        held, message = received.process_queue, received.message_ext
        try:
            failed = outcome is not Outcome.ACKNOWLEDGED and message in held
            if failed and not await self._gives_up(held, message, outcome):
                self.consume_again(received)
                return
            self._remove(held, message)
        except Exception:
            log.exception(_NOT_SETTLED, self._group, received)
            self.consume_again(received)
            return
        self._active.discard(held)
        self.put(held, ())

    def consume_again(self, received: ReceivedMessage) -> None:
        """Suspend the queue of a message that is still held; it comes again."""
        held, message = received.process_queue, received.message_ext
        if message in held:
            message.reconsume_times += 1
            held.suspend(message)
        self._later(held)

    async def _gives_up(self, held: ProcessQueue, message: MessageExt, outcome: Outcome) -> bool:
        """Return true if the queue continues after a failed message, which is then a dead letter."""
        if outcome is Outcome.RETRIED and not 0 <= self._max_reconsume_times <= message.reconsume_times:
            return False
        if self._send_back is None:
            log.warning("broadcasting: message %s is not consumed again", message.offset_msg_id)
            return True
        return await self._send_back.send_back(held.queue, message, DEAD_LETTER_LEVEL)

    def _later(self, held: ProcessQueue) -> None:
        self._tasks.start(self._ready_again(held), "suspend")

    async def _ready_again(self, held: ProcessQueue) -> None:
        await asyncio.sleep(self._suspend_s)
        self._add((held,))
