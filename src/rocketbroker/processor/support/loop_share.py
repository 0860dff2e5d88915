"""Turns for others during long work on the event loop."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

# Longest time that work blocks the event loop.
HELD_S = 0.01

# Entries handled in one turn of the event loop, at a few microseconds each.
_AT_A_TIME = 1_000

K = TypeVar("K")
V = TypeVar("V")


def parts_of(table: Mapping[K, V]) -> Iterator[dict[K, V]]:
    """Split a table into parts that each fit into one turn of the event loop."""
    entries = iter(table.items())
    while part := dict(islice(entries, _AT_A_TIME)):
        yield part


class LoopShare:
    """The share of the loop that one request takes at a time."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def turn(self) -> None:
        """Let others run if this request has blocked the event loop for long enough."""
        if time.perf_counter() - self._since > HELD_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
