"""Requests about many topics, groups or brokers at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

# Enough to hide the time of each answer, and few enough to leave the servers to their clients.
_AT_ONCE = 32


async def of_many(items: Iterable[Item], ask: Callable[[Item], Awaitable[Found]]) -> list[Found]:
    """Return the answers for all items in their order, with at most 32 requests under way.

    Args:
        items: the items.
        ask: returns the answer for one.

    Raises:
        Exception: the first that ``ask`` raised; requests under way end with the loop of the tool.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Item) -> Found:
        async with gate:
            return await ask(item)

    return await asyncio.gather(*map(one, items))
