"""Pulled messages of one queue until they are consumed, and the limits on them (ProcessQueue of RocketMQ)."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from rocketbroker.client.core.options import CheckedStruct, Count
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue

_MIB = 1024 * 1024


class FlowControl(CheckedStruct, frozen=True):
    """Limits of the messages that wait for their consumption; pulls pause while one is reached.

    A queue of which nothing is held may always pull, so that slow queues do not stop the others. Each queue can thus
    exceed a limit by one answer of the broker.

    Args:
        messages_per_queue: messages of one queue (pullThresholdForQueue).
        bytes_per_queue: bytes of one queue (pullThresholdSizeForQueue, which counts MiB).
        span_per_queue: distance from the first to the last held offset of a queue (consumeConcurrentlyMaxSpan).
        bytes_in_all: bytes of all queues together.
    """

    messages_per_queue: Count = 1000
    bytes_per_queue: Count = 100 * _MIB
    span_per_queue: Count = 2000
    bytes_in_all: Count = 256 * _MIB


class HeldBytes:
    """Bytes that a consumer holds, and the pulls that wait for others to be consumed."""

    def __init__(self, limits: FlowControl) -> None:
        self._limits = limits
        self._waiting: dict[ProcessQueue, asyncio.Event] = {}
        self._is_on_hold = False
        self.total = 0

    def add(self, size: int) -> None:
        """Count bytes that are held now."""
        self.total += size

    def remove(self, size: int, held: "ProcessQueue") -> None:
        """Count bytes that a queue no longer holds."""
        was_full = self.total >= self._limits.bytes_in_all
        self.total -= size
        if self._waiting:
            for each in self._waiting if was_full else (held,):
                if each in self._waiting and self._has_room(each):
                    self._waiting[each].set()

    def hold_pulls(self, hold: bool) -> None:
        """Let no queue pull, whatever is held, or end that."""
        self._is_on_hold = hold
        for held, freed in self._waiting.items():
            if self._has_room(held):
                freed.set()

    async def wait_for_room(self, held: "ProcessQueue") -> None:
        """Wait until a queue may pull."""
        while not self._has_room(held):
            freed = self._waiting.setdefault(held, asyncio.Event())
            try:
                await freed.wait()
            finally:
                self._waiting.pop(held, None)

    def _has_room(self, held: "ProcessQueue") -> bool:
        limits = self._limits
        if self._is_on_hold:
            return False
        return not len(held) or (
            len(held) < limits.messages_per_queue
            and held.bytes < limits.bytes_per_queue
            and held.span < limits.span_per_queue
            and self.total < limits.bytes_in_all
        )


# Messages are consumed in any order, and the group has one offset for a queue: that of the first message still held,
# before which all are consumed. It never passes a message whose handler runs, waits for a retry, or was killed. Those
# behind it that were consumed already come again after a crash.
# A message is held by its offset and known by its identity. A queue that was dropped, moved and taken again may hold
# another record at the same offset, which a late outcome of the first one must neither remove nor end.
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
        last_pull, last_consume, last_lock: monotonic times of the last pull, consumption and lock.
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
        self._started: dict[int, tuple[float, ReceivedMessage]] = {}
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[MessageExt]:
        return iter(self._held.values())

    def __contains__(self, message: MessageExt) -> bool:
        return self._held.get(message.queue_offset) is message

    @property
    def first(self) -> MessageExt | None:
        """The held message with the lowest offset."""
        return next(iter(self), None)

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

    def start(self, received: ReceivedMessage, now: float) -> None:
        """Note that a message is being consumed."""
        self._started[received.message_ext.queue_offset] = now, received
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

    def started_before(self, now: float) -> list[ReceivedMessage]:
        """Return the consumptions that began before a time."""
        return [received for start, received in self._started.values() if start < now]

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
