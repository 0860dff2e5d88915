"""Common part of producers and consumers: group, client instance, start and close."""

import asyncio
import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rocketbroker.client.client_config import ClientConfig
from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.errors import ClientStateError
from rocketbroker.client.message import check_group
from rocketbroker.common.lifecycle import MustClose, stop_all


class GroupMember(MustClose, ABC):
    """A member of a group, usable between ``start`` and ``close`` or within ``async with``.

    Args:
        group: its group, without the namespace.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
    """

    # Kind of member, for error texts.
    kind = "member"

    def __init__(self, group: str, config: str | ClientConfig, client: ClientInstance | None) -> None:
        check_group(group)
        self._owns_client = client is None
        self._client = client or ClientInstance(config)
        self.group = self._client.namespace.wrap(group)
        self._started = False
        # The close that was begun last, and the exception that was being handled then.
        self._closing: asyncio.Task[None] | None = None
        self._closing_error: BaseException | None = None

    @abstractmethod
    def _join(self) -> None:
        """Add the group to the heartbeats."""

    @abstractmethod
    async def _leave(self) -> None:
        """Unregister at the brokers."""

    async def start(self) -> None:
        """Start; each broker learns of the group on first use.

        Raises:
            ClientStateError: the client was started in another event loop.
        """
        self._client.check_loop(self.kind, self.group)
        if self._owns_client:
            await self._client.start()
            self._client.mark_closed()  # the warning names this member
        try:
            self._join()
        except BaseException:
            if self._owns_client:
                await self._client.stop()
            raise
        self._started = True
        self.mark_open()

    async def close(self) -> None:
        """Unregister at the brokers and close the connections.

        The close runs to its end once it has begun: a caller that is cancelled, for example by ``asyncio.timeout``,
        leaves it running, and a second ``close`` waits for it. Half a close would leave a member in the heartbeats that
        keeps its queues and consumes nothing.

        Raises:
            ClientStateError: the member belongs to another event loop.
        """
        if self._started:
            if self._client.remoting.is_forked:
                self._started = False
                return  # the process that was forked from keeps the connections
            self._client.check_loop(self.kind, self.group)
            self._started = False
            self.mark_closed()
            self._closing_error = sys.exception()
            self._closing = asyncio.get_running_loop().create_task(self._close(), name=f"close {self.group}")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await stop_all(self._leave, self._client.stop if self._owns_client else None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_started(self) -> None:
        if self._client.remoting.is_forked:
            raise ClientStateError(
                f"{self.kind} {self.group} belongs to the process that this one was forked from; "
                "make one after the fork"
            )
        if not self._started:
            raise ClientStateError(f"{self.kind} {self.group} is not started, or is closed; use it within 'async with'")
        self._client.check_loop(self.kind, self.group)
