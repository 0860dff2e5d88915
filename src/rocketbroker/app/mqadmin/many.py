"""Requests about many topics, groups or brokers at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from rocketbroker.app.mqadmin.command import with_hint
from rocketbroker.common.errors import RemotingError, RocketBrokerError

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


class BrokerFailure(msgspec.Struct):
    """A broker whose figures are missing, and why."""

    addr: str
    error: str


class MissingBrokers(NamedTuple):
    """Brokers whose figures a report lacks.

    Attributes:
        silent: those that did not answer.
        failed: those that answered with an error.
    """

    silent: list[BrokerFailure]
    failed: list[BrokerFailure]

    @property
    def rows(self) -> list[BrokerFailure]:
        """All of them."""
        return [*self.silent, *self.failed]


def missing_brokers(errors: Mapping[str, RocketBrokerError]) -> MissingBrokers:
    """Return the brokers of errors by address."""
    missing = MissingBrokers([], [])
    for address, error in errors.items():
        kind = missing.silent if isinstance(error, RemotingError) else missing.failed
        kind.append(BrokerFailure(address, with_hint(error)))
    return missing
