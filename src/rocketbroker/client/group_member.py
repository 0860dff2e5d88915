"""Common part of producers and consumers: group, client instance, start and close."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rocketbroker.client.client_config import ClientConfig
from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.errors import ClientStateError
from rocketbroker.client.message import check_group


class GroupMember(ABC):
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

    @abstractmethod
    def _join(self) -> None:
        """Add the group to the heartbeats."""

    @abstractmethod
    async def _leave(self) -> None:
        """Unregister at the brokers."""

    async def start(self) -> None:
        """Start; each broker learns of the group on first use."""
        if self._owns_client:
            await self._client.start()
        self._started = True
        self._join()

    async def close(self) -> None:
        """Unregister at the brokers and close the connections."""
        if not self._started:
            return
        self._started = False
        if self._client.remoting.is_forked:
            return  # the process that was forked from keeps the connections
        try:
            await self._leave()
        finally:
            if self._owns_client:
                await self._client.stop()

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
