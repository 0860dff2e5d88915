"""Connected consumers (org.apache.rocketmq.broker.client.ConsumerManager)."""

import logging
from collections.abc import Callable, Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.client_groups import ClientGroups
from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.broker.client.subscription import Subscription
from rocketbroker.codec.message.topic_validator import is_system_group
from rocketbroker.codec.remoting.audience import Audience
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumerData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

_PORT_BYTES = 4


class ConsumerManager(ClientGroups):
    """Consumer groups with connected clients, by name. All methods are for the event loop.

    Args:
        clock: measures the time since a client's last heartbeat.
        channel_expired_timeout_s: seconds without a heartbeat after which a client is closed.
        on_ids_changed: called with a group whose clients or topics have changed, unless it is broadcasting or has
            notifications disabled (``notifyConsumerIdsChangedEnable``).
        on_unregister: called with a group whose last client has left.
    """

    kind = "consumer"

    def __init__(
        self,
        clock: Clock,
        channel_expired_timeout_s: float,
        on_ids_changed: Callable[[ConsumerGroupInfo], None],
        on_unregister: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(clock, channel_expired_timeout_s)
        self._on_ids_changed = on_ids_changed
        self._on_unregister = on_unregister
        self.groups: dict[str, ConsumerGroupInfo] = {}
        # Number of times that the clients of a group began to differ in their subscriptions.
        self.conflict_count = 0

    def group_info(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group, ``None`` if it has no clients."""
        return self.groups.get(group)

    def find_subscription_data(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of the group to the topic."""
        info = self.groups.get(group)
        return None if info is None else info.subscription_table.get(topic)

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return the client of the group with that id."""
        info = self.groups.get(group)
        return None if info is None else info.find_channel(client_id)

    def may_commit(self, group: str, connection: Connection) -> bool:
        """Return true if a peer may commit offsets of a group.

        A commit moves the group, so a live group is moved by its clients only, and a group of the broker's own by none.
        A group without clients accepts any: pull consumers need not send heartbeats. Java clients may use a second
        connection (VIP channel), and a client that lost its connection commits before its next heartbeat. So the host
        counts, until its last heartbeat expires. Brokers return what a slave kept, administrators set offsets.
        """
        if connection.audience is not Audience.CLIENT:
            return True
        if is_system_group(group):
            return False
        info = self.groups.get(group)
        if info is None:
            return True
        return connection in info.channels or info.had_member_at(
            connection.remote_host[:-_PORT_BYTES], self._clock.monotonic() - self._timeout_s
        )

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the groups with clients that consume the topic (queryTopicConsumeByWho)."""
        return [name for name, info in self.groups.items() if topic in info.subscription_table]

    def register(
        self,
        channel: ClientChannelInfo,
        data: ConsumerData,
        *,
        notify_enabled: bool = True,
        update_subscription: bool = True,
    ) -> bool:
        """Register a client in one group of its heartbeat.

        Args:
            channel: the client.
            data: the group in the heartbeat.
            notify_enabled: true if clients are notified when members join or leave.
            update_subscription: false for a heartbeat without subscriptions (``withoutSub``).

        Returns:
            True if the client is new in the group, or topics were added or removed.
        """
        info = self.groups.get(data.group_name)
        if info is None:
            info = self.groups[data.group_name] = ConsumerGroupInfo(data.group_name)
        info.consume_type = data.consume_type
        info.message_model = data.message_model
        info.consume_from_where = data.consume_from_where
        info.notify_enabled = notify_enabled
        info.note_host(
            channel.connection.remote_host[:-_PORT_BYTES], channel.last_update, channel.last_update - self._timeout_s
        )
        changed = info.update_channel(channel)
        self._joined(data.group_name, channel.connection)
        if update_subscription:
            changed |= info.update_subscription(data.subscription_data_set)
            self._check_conflict(info, info.client_subscriptions.update(channel, data.subscription_data_set))
        if changed:
            log.debug("consumer %r changed group %s", channel, data.group_name)
            self._notify(info)
        return changed

    def _channels(self) -> Iterable[ClientChannelInfo]:
        return (channel for info in self.groups.values() for channel in info.channels.values())

    def _drop(self, group: str, connection: Connection) -> None:
        info = self.groups.get(group)
        if info is None or not info.remove_channel(connection):
            return
        self._check_conflict(info, info.client_subscriptions.remove(connection))
        if info.channels:
            self._notify(info)
        else:
            log.info("consumer group %s has no clients any more", group)
            del self.groups[group]
            if self._on_unregister is not None:
                self._on_unregister(group)

    def runtime_info(self) -> dict[str, str]:
        """Return the counts of subscription conflicts and of groups in conflict, if any (not in RocketMQ)."""
        if not self.conflict_count:
            return {}
        now = sum(1 for info in self.groups.values() if info.client_subscriptions.is_conflicting)
        return {"subscriptionConflicts": str(self.conflict_count), "subscriptionConflictGroups": str(now)}

    def _check_conflict(self, info: ConsumerGroupInfo, changed: bool) -> None:
        """Log when a conflict begins and when it ends."""
        if not changed:
            return
        if conflict := info.client_subscriptions.conflict:
            self.conflict_count += 1
            log.warning("consumer group %s gets only a part of its messages: %s", info.group_name, conflict)
        else:
            log.info("consumer group %s: the subscriptions of all clients agree again", info.group_name)

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if info.notify_enabled and not info.is_broadcasting:
            self._on_ids_changed(info)
