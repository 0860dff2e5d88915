"""Connected producers (org.apache.rocketmq.broker.client.ProducerManager)."""

import logging
from collections.abc import Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.client_groups import ClientGroups
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)


class ProducerManager(ClientGroups):
    """Producer groups with connected clients, by name. All methods are for the event loop.

    Args:
        clock: measures the time since a client's last heartbeat.
        channel_expired_timeout_s: seconds without a heartbeat after which a client is closed.
    """

    kind = "producer"

    def __init__(self, clock: Clock, channel_expired_timeout_s: float) -> None:
        super().__init__(clock, channel_expired_timeout_s)
        self.groups: dict[str, dict[Connection, ClientChannelInfo]] = {}
        # Connections by client id, for replies.
        self.clients: dict[str, Connection] = {}
        self._turn = 0

    def register(self, group: str, channel: ClientChannelInfo) -> None:
        """Register or renew a client of a group."""
        channels = self.groups.setdefault(group, {})
        known = channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update = channel.last_update
            return
        channels[channel.connection] = channel
        if known is not None and self.clients.get(known.client_id) is channel.connection:
            del self.clients[known.client_id]
        self.clients[channel.client_id] = channel.connection
        self._joined(group, channel.connection)
        log.info("producer %r has joined group %s", channel, group)

    def find_channel(self, client_id: str) -> Connection | None:
        """Return the connection of the client with that id."""
        return self.clients.get(client_id)

    def available_channel(self, group: str) -> Connection | None:
        """Return a connection of the group, in turn; skip those behind, as data sent to them stays in memory."""
        connections = [each for each in self.groups.get(group, ()) if each.is_open and not each.is_behind]
        if not connections:
            return None
        self._turn += 1
        return connections[self._turn % len(connections)]

    def _channels(self) -> Iterable[ClientChannelInfo]:
        return (channel for channels in self.groups.values() for channel in channels.values())

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
