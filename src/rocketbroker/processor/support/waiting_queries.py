"""Limit of queries that wait for the store's query thread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import AddressShares, address_key, is_loopback
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

# Queries of one address that the thread runs in turns; each turn of a long one takes 50 ms.
_MOST_AT_WORK: Final = 4


class WaitingQueries:
    """Counts the queries that have not ended.

    The thread takes turns of all queries in order. So an address has few of them at work, and the others wait here: a
    query from elsewhere comes before these.

    Args:
        config: ``maxWaitingQueries``.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._count = 0
        self._shares = AddressShares()
        self._turns: dict[bytes, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def one_more(self, connection: Connection) -> AsyncIterator[None]:
        """Count a query until it has ended, and wait for its turn among those of its address.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many wait.
        """
        key, limit = address_key(connection.remote_host), self._config.max_waiting_queries
        free, taken = limit - self._count, self._shares.taken(key)
        if free <= 0 or not (is_loopback(key) or self._shares.allows(key, free)):
            remark = (
                f"maxWaitingQueries: {self._count:,} queries are running, {taken:,} of them from the address of "
                f"{connection.remote_address}, and the limit is {limit:,}, of which an address gets as many as it "
                "leaves; ask again later or raise maxWaitingQueries"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        self._count += 1
        self._shares.add(key)
        turns = self._turns.setdefault(key, asyncio.Semaphore(_MOST_AT_WORK))
        try:
            async with turns:
                yield
        finally:
            self._count -= 1
            self._shares.remove(key)
            if not self._shares.taken(key):
                del self._turns[key]
