"""Pulled messages of one queue until they are consumed (org.apache.rocketmq.client.impl.consumer.ProcessQueue)."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from rocketbroker.client.consumer.flow_control import HeldBytes
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue


class Consumption(Protocol):
    """Message that was given out. ``outcome`` is None until its consumption ends."""

    message_ext: MessageExt

    @property
    def outcome(self) -> object: ...

    async def retry_later(self, *, delay_level: int = 0) -> None:
        """End the consumption and give the message back."""


class ProcessQueue:
    """Messages that a consumer holds of one of its queues.

    Args:
        queue: the queue.
        offset: offset of the first message to pull.
        now: monotonic time, in seconds.
        held_bytes: counter of the bytes in all queues of the consumer.

    Attributes:
        next_offset: offset of the next pull.
        dropped: the queue is no longer this consumer's; results of its messages change no offset.
        last_stored_ms: store time of the last message that was put; 0 before the first.
        last_pull: monotonic time of the last pull; likewise ``last_consume`` and ``last_lock``.
    """

    def __init__(self, queue: MessageQueue, offset: int, now: float, held_bytes: HeldBytes) -> None:
        self.queue = queue
        self.next_offset = offset
        self.dropped = False
        self.last_pull = self.last_consume = self.last_lock = now
        self.last_stored_ms = 0
        self.bytes = 0
        self._held_bytes = held_bytes
        # Ordered by offset. The first entry of a plain dict is found by skipping all entries removed before it.
        self._held: OrderedDict[int, MessageExt] = OrderedDict()
        self._started: dict[int, tuple[float, Consumption]] = {}
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: MessageExt) -> bool:
        return self._held.get(message.queue_offset) is message

    @property
    def first(self) -> MessageExt | None:
        """The held message with the lowest offset."""
        return next(iter(self._held.values()), None)

    @property
    def span(self) -> int:
        """Distance from the first held message to the last."""
        return next(reversed(self._held)) - next(iter(self._held)) if self._held else 0

    @property
    def offset_range(self) -> tuple[int, int]:
        """Offsets of the first and last held message; zeros if there is none."""
        return (next(iter(self._held)), next(reversed(self._held))) if self._held else (0, 0)

    @property
    def commit_offset(self) -> int:
        """Offset before which all messages are consumed."""
        return next(iter(self._held)) if self._held else self.next_offset

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Hold pulled messages; return those that were not held yet."""
        new = [message for message in messages if message.queue_offset not in self._held]
        self._held.update([(message.queue_offset, message) for message in new])
        if new:
            self.last_stored_ms = new[-1].store_timestamp
        size = sum([len(message.body) + len(message.properties_bytes) for message in new])
        self.bytes += size
        self._held_bytes.add(size)
        return new

    def start(self, consumption: Consumption, now: float) -> None:
        """Note that a message is being consumed."""
        self._started[consumption.message_ext.queue_offset] = now, consumption
        self.last_consume = now

    def suspend(self, message: MessageExt) -> None:
        """Note that a message waits to be consumed again."""
        self._end(message.queue_offset)

    def remove(self, message: MessageExt) -> bool:
        """Remove a consumed message; return false if it is not held."""
        offset = message.queue_offset
        if self._held.get(offset) is not message:
            return False
        del self._held[offset]
        self._end(offset)
        size = len(message.body) + len(message.properties_bytes)
        self.bytes -= size
        self._held_bytes.remove(size, self)
        return True

    def started_before(self, now: float) -> list[Consumption]:
        """Return the consumptions that began before a time."""
        return [consumption for start, consumption in self._started.values() if start < now]

    async def wait_idle(self) -> None:
        """Wait until no message is being consumed."""
        while self._started:
            self._idle.clear()
            await self._idle.wait()

    def drop(self) -> None:
        """Give up the queue and all held messages."""
        self.dropped = True
        self._held.clear()
        self._started.clear()
        self._idle.set()
        size, self.bytes = self.bytes, 0
        self._held_bytes.remove(size, self)

    def _end(self, offset: int) -> None:
        self._started.pop(offset, None)
        if not self._started:
            self._idle.set()
