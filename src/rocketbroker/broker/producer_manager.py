"""Which producers are there (org.apache.rocketmq.broker.client.ProducerManager)."""

import logging

from rocketbroker.broker.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)


class ProducerManager:
    """Producer groups that have clients, by name. All methods are for the event loop.

    Args:
        clock: says how long a client has been silent.
        channel_expired_timeout_s: after how much silence a client is closed.
    """

    def __init__(self, clock: Clock, channel_expired_timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = channel_expired_timeout_s
        self._groups_of: dict[Connection, set[str]] = {}
        self._next = 0
        self.groups: dict[str, dict[Connection, ClientChannelInfo]] = {}
        # Where to find a client by its id, for replies to it.
        self.clients: dict[str, Connection] = {}

    def register(self, group: str, channel: ClientChannelInfo) -> None:
        """Register or renew a client of a group."""
        channels = self.groups.setdefault(group, {})
        known = channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update = channel.last_update
            return
        channels[channel.connection] = channel
        self.clients[channel.client_id] = channel.connection
        self._groups_of.setdefault(channel.connection, set()).add(group)
        log.info("producer %r has joined group %s", channel, group)

    def unregister(self, group: str, connection: Connection) -> None:
        """Drop a client from a group."""
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[connection]
        self._drop(group, connection)

    def close_connection(self, connection: Connection) -> None:
        """Drop a client from all its groups, since its connection is gone (doChannelCloseEvent)."""
        for group in self._groups_of.pop(connection, ()):
            self._drop(group, connection)

    def scan_not_active(self) -> None:
        """Close the clients that sent no heartbeat for too long, and drop them."""
        limit = self._clock.monotonic() - self._timeout_s
        expired = {
            channel.connection: channel
            for channels in self.groups.values()
            for channel in channels.values()
            if channel.last_update < limit
        }
        for connection, channel in expired.items():
            log.warning("producer %r sent no heartbeat for %s s", channel, self._timeout_s)
            self.close_connection(connection)
            connection.close(f"producer {channel.client_id} sent no heartbeat for {self._timeout_s:g} s")

    def find_channel(self, client_id: str) -> Connection | None:
        """The connection of the client with that id."""
        return self.clients.get(client_id)

    def available_channel(self, group: str) -> Connection | None:
        """An open connection of the group, each in turn (getAvailableChannel)."""
        connections = [connection for connection in self.groups.get(group, ()) if connection.is_open]
        if not connections:
            return None
        self._next += 1
        return connections[self._next % len(connections)]

    def _drop(self, group: str, connection: Connection) -> None:
        channels = self.groups.get(group)
        channel = None if channels is None else channels.pop(connection, None)
        if channels is None or channel is None:
            return
        log.info("producer %r has left group %s", channel, group)
        if not channels:
            del self.groups[group]
        if connection not in self._groups_of and self.clients.get(channel.client_id) is connection:
            del self.clients[channel.client_id]
