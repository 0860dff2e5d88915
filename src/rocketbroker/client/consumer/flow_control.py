"""Limits of the messages that a consumer holds."""

import asyncio
from typing import Protocol

from rocketbroker.client.options import CheckedStruct, Count

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


class Held(Protocol):
    """Messages held of one queue."""

    bytes: int

    def __len__(self) -> int:
        """Return the number of messages."""

    @property
    def span(self) -> int:
        """Distance from the first held offset to the last."""


class HeldBytes:
    """Bytes that a consumer holds, and the pulls that wait for others to be consumed.

    Args:
        limits: the limits.
    """

    def __init__(self, limits: FlowControl) -> None:
        self._limits = limits
        self._waiting: dict[Held, asyncio.Event] = {}
        self._is_on_hold = False
        self.total = 0

    def add(self, size: int) -> None:
        """Count bytes that are held now."""
        self.total += size

    def remove(self, size: int, held: Held) -> None:
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

    async def wait_for_room(self, held: Held) -> None:
        """Wait until a queue may pull."""
        while not self._has_room(held):
            freed = self._waiting.setdefault(held, asyncio.Event())
            try:
                await freed.wait()
            finally:
                self._waiting.pop(held, None)

    def _has_room(self, held: Held) -> bool:
        limits = self._limits
        if self._is_on_hold:
            return False
        return not len(held) or (
            len(held) < limits.messages_per_queue
            and held.bytes < limits.bytes_per_queue
            and held.span < limits.span_per_queue
            and self.total < limits.bytes_in_all
        )
