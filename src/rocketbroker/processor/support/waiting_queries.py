"""Limit of queries that wait for the store's query thread."""

from collections.abc import Iterator
from contextlib import contextmanager

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError


class WaitingQueries:
    """Counts the queries that have not ended.

    Args:
        config: ``maxWaitingQueries``.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a query until it has ended.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many wait.
        """
        limit = self._config.max_waiting_queries
        if self._count >= limit:
            remark = (
                f"maxWaitingQueries: {self._count:,} queries are running and the limit is {limit:,}; ask again later "
                "or raise maxWaitingQueries"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
