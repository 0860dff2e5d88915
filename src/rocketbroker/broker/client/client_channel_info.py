"""Connections of clients and the groups they belong to (org.apache.rocketmq.broker.client.ClientChannelInfo)."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import shown

log = logging.getLogger(__name__)


class ClientChannelInfo:
    """A connected client.

    Attributes:
        last_update: time of its last heartbeat in seconds of the monotonic clock.
        may_publish: returns true if the user of that heartbeat may send to a topic; ``None`` if rights are not checked.
    """

    __slots__ = ("client_id", "connection", "language", "last_update", "may_publish", "version")

    def __init__(self, connection: Connection, client_id: str, language: str, version: int, last_update: float) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update = last_update
        self.may_publish: Callable[[str], bool] | None = None

    def __repr__(self) -> str:
        return f"{shown(self.client_id)}@{self.connection.remote_address}"


_NONE: frozenset[str] = frozenset()


class ClientGroups(ABC):
    """Groups with connected clients. All methods are for the event loop.

    Args:
        clock: measures the time since a client's last heartbeat.
        channel_expired_timeout_s: seconds without a heartbeat after which a client is closed.
    """

    # Kind of the clients, for log lines.
    kind = "client"

    def __init__(self, clock: Clock, channel_expired_timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = channel_expired_timeout_s
        self._groups_of: dict[Connection, set[str]] = {}

    @abstractmethod
    def _channels(self) -> Iterable[ClientChannelInfo]:
        """Return all clients, once for each of their groups."""

    @abstractmethod
    def _drop(self, group: str, connection: Connection) -> None:
        """Remove a client from a group, if it is a member."""

    def groups_of(self, connection: Connection) -> AbstractSet[str]:
        """Return the groups that a client is in."""
        return self._groups_of.get(connection, _NONE)

    def _joined(self, group: str, connection: Connection) -> None:
        """Note that a client is in a group."""
        self._groups_of.setdefault(connection, set()).add(group)

    def unregister(self, group: str, connection: Connection) -> None:
        """Remove a client from a group."""
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[connection]
        self._drop(group, connection)

    def close_connection(self, connection: Connection) -> None:
        """Remove a client from all its groups after its connection was closed (doChannelCloseEvent)."""
        for group in self._groups_of.pop(connection, ()):
            self._drop(group, connection)

    def scan_not_active(self) -> None:
        """Close and remove the clients whose last heartbeat is too old."""
        limit = self._clock.monotonic() - self._timeout_s
        expired = {channel.connection: channel for channel in self._channels() if channel.last_update < limit}
        for connection, channel in expired.items():
            log.warning("%s %r sent no heartbeat for %s s", self.kind, channel, self._timeout_s)
            self.close_connection(connection)
            connection.close(f"{self.kind} {channel.client_id} sent no heartbeat for {self._timeout_s:g} s")
