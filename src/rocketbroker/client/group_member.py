"""What producers and consumers have in common: a group, a client instance, a beginning and an end."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.errors import ClientStateError
from rocketbroker.client.message import check_group


class GroupMember(ABC):
    """A member of a group, usable between ``start`` and ``close`` or within ``async with``.

    Args:
        group: its group.
        namesrv_addr: ``host:port`` of the name servers, joined by ``;``; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
    """

    # What it is, for error texts.
    kind = "member"

    def __init__(self, group: str, namesrv_addr: str, client: ClientInstance | None) -> None:
        check_group(group)
        self.group = group
        self._owns_client = client is None
        self._client = client or ClientInstance(namesrv_addr)
        self._started = False

    @abstractmethod
    def _join(self) -> None:
        """Have the heartbeats tell of the group."""

    @abstractmethod
    async def _leave(self) -> None:
        """Sign off at the brokers."""

    async def start(self) -> None:
        """Begin; brokers are told of the group when they are used first."""
        if self._owns_client:
            await self._client.start()
        self._started = True
        self._join()

    async def close(self) -> None:
        """Sign off at the brokers and close the connections."""
        if not self._started:
            return
        self._started = False
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
        if not self._started:
            raise ClientStateError(f"{self.kind} {self.group} is not started, or closed: use it within 'async with'")
