"""Connected consumers (org.apache.rocketmq.broker.client.ConsumerManager)."""

import logging
from collections.abc import Callable, Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.client_groups import ClientGroups
from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.broker.client.subscription import Subscription
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumerData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)


class ConsumerManager(ClientGroups):
    """Consumer groups that have clients, by name. All methods are for the event loop.

    Args:
        clock: says how long a client has been silent.
        channel_expired_timeout_s: after how much silence a client is closed.
        on_ids_changed: called with a group whose clients or topics have changed, unless it is broadcasting or does
            not want to know (``notifyConsumerIdsChangedEnable``).
        on_unregister: told the group when its last client is gone.
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
        # How often the clients of a group began to disagree about what they consume.
        self.conflict_count = 0

    def group_info(self, group: str) -> ConsumerGroupInfo | None:
        """The group, ``None`` when no client of it is there."""
        return self.groups.get(group)

    def find_subscription_data(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of the group to the topic."""
        info = self.groups.get(group)
        return None if info is None else info.subscription_table.get(topic)

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """A client of the group."""
        info = self.groups.get(group)
        return None if info is None else info.find_channel(client_id)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Groups with clients that consume the topic (queryTopicConsumeByWho)."""
        return [name for name, info in self.groups.items() if topic in info.subscription_table]

    def register(
        self,
        channel: ClientChannelInfo,
        data: ConsumerData,
        *,
        notify_enabled: bool = True,
        update_subscription: bool = True,
    ) -> bool:
        """Take over one group of a heartbeat.

        Args:
            channel: the client.
            data: the group as the heartbeat tells of it.
            notify_enabled: whether the group wants to know when its clients change.
            update_subscription: false for a heartbeat that leaves them out (``withoutSub``).

        Returns:
            Whether the client is new in the group or topics came or went.
        """
        info = self.groups.get(data.group_name)
        if info is None:
            info = self.groups[data.group_name] = ConsumerGroupInfo(data.group_name)
        info.consume_type = data.consume_type
        info.message_model = data.message_model
        info.consume_from_where = data.consume_from_where
        info.notify_enabled = notify_enabled
        changed = info.update_channel(channel)
        self._joined(data.group_name, channel.connection)
        if update_subscription:
            changed |= info.update_subscription(data.subscription_data_set)
            self._check_conflict(info, info.client_subscriptions.update(channel, data.subscription_data_set))
        if changed:
            log.debug("group %s has changed by %r", data.group_name, channel)
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
            log.info("group %s has no clients any more", group)
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
        """Log a conflict when it begins and when it ends."""
        if not changed:
            return
        if conflict := info.client_subscriptions.conflict:
            self.conflict_count += 1
            log.warning("group %s gets only a part of its messages: %s", info.group_name, conflict)
        else:
            log.info("all clients of group %s subscribe to the same again", info.group_name)

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if info.notify_enabled and not info.is_broadcasting:
            self._on_ids_changed(info)
