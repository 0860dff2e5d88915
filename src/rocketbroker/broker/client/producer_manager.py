"""Producer groups, and the removal of silent clients (ProducerManager, ClientHousekeepingService)."""

import logging
from collections.abc import Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo, ClientGroups
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)


class ProducerManager(ClientGroups):
    """Producer groups with connected clients, by name. All methods are for the event loop."""

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
            known.may_publish = channel.may_publish
            return
        channels[channel.connection] = channel
        if known is not None:
            self._forget_id(known)
        self.clients[channel.client_id] = channel.connection
        self._joined(group, channel.connection)
        log.info("producer %r has joined group %s", channel, group)

    def find_channel(self, client_id: str) -> Connection | None:
        """Return the connection of the client with that id."""
        return self.clients.get(client_id)

    def available_channel(self, group: str, topic: str) -> Connection | None:
        """Return a connection of the group, in turn; skip those behind, as data sent to them stays in memory.

        Whoever sends a heartbeat is in the group, so only users who may send to the topic are asked about its messages.
        """
        connections = [
            connection
            for connection, channel in self.groups.get(group, {}).items()
            if connection.is_open
            and not connection.is_behind
            and (channel.may_publish is None or channel.may_publish(topic))
        ]
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
        self._forget_id(channel)

    def _forget_id(self, left: ClientChannelInfo) -> None:
        """Forget the id under which a client was in a group, unless it is in another group under that id."""
        client_id, connection = left.client_id, left.connection
        if self.clients.get(client_id) is not connection:
            return
        others = (self.groups[group].get(connection) for group in self.groups_of(connection) if group in self.groups)
        if not any(each is not None and each.client_id == client_id for each in others):
            del self.clients[client_id]


SCAN_PERIOD_S = 10.0


class ClientHousekeepingService:
    """Removes clients at once when their connection closes; silent ones, and expired locks, by a scan every 10 s."""

    def __init__(
        self,
        producer_manager: ProducerManager,
        consumer_manager: ConsumerManager,
        locks: RebalanceLockManager,
        period_s: float = SCAN_PERIOD_S,
    ) -> None:
        self._producer_manager = producer_manager
        self._consumer_manager = consumer_manager
        self._locks = locks
        self._period_s = period_s
        self._tasks = TaskOwner("ClientHousekeepingService")

    async def start(self) -> None:
        self._tasks.every(self._period_s, self.scan, "scan")

    async def stop(self) -> None:
        await self._tasks.stop()

    def scan(self) -> None:
        """Close the clients whose last heartbeat is too old; forget expired locks."""
        self._producer_manager.scan_not_active()
        self._consumer_manager.scan_not_active()
        self._locks.forget_expired()

    def on_close(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        self._producer_manager.close_connection(connection)
        self._consumer_manager.close_connection(connection)
