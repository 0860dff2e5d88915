"""Consumer groups and the notice to their members when they change (ConsumerManager, Broker2Client)."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo, ClientGroups
from rocketbroker.broker.client.consumer_group_info import (
    LONGEST_CACHED,
    ConsumerGroupInfo,
    Subscription,
    subscription_of,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import is_system_group
from rocketbroker.codec.remoting.bodies.client import ConsumerData
from rocketbroker.codec.remoting.bodies.offset import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.admin import NotifyConsumerIdsChangedRequestHeader
from rocketbroker.codec.remoting.headers.message import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

_PORT_BYTES = 4
# Seconds after its last pop for which a group counts as subscribed (subscriptionExpiredTimeout).
_COMPENSATED_S = 600.0
# Groups choose how many topics they pop, and by which expressions: so many entries take 10 MB at most.
_MOST_COMPENSATED = 10_000


class _Popped(msgspec.Struct, gc=False, eq=False):
    """The last pop of a topic by a group: its time, and its expression, ``None`` if that is long."""

    time: float
    expression_type: str | None
    expression: str | None


class ConsumerManager(ClientGroups):
    """Consumer groups with connected clients, by name. All methods are for the event loop.

    Args:
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
        # By group and topic, the oldest pop first.
        self._compensated: OrderedDict[tuple[str, str], _Popped] = OrderedDict()
        # Number of times that the clients of a group began to differ in their subscriptions.
        self.conflict_count = 0

    def group_info(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group, ``None`` if it has no clients."""
        return self.groups.get(group)

    def find_subscription_data(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of the group to the topic: that of its heartbeats, else that of its pops."""
        info = self.groups.get(group)
        found = None if info is None else info.subscription_table.get(topic)
        if found is None and self.has_popped(group, topic):
            popped = self._compensated[group, topic]
            if popped.expression is not None:
                return subscription_of(topic, popped.expression_type, popped.expression)
        return found

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

    def compensate_subscribe_data(self, group: str, topic: str, expression_type: str | None, expression: str) -> None:
        """Note the subscription of a pop: a group that pops through a proxy may send no heartbeats.

        Runs once per pop.
        """
        compensated, key = self._compensated, (group, topic)
        kept = expression if len(expression) <= LONGEST_CACHED else None
        compensated[key] = _Popped(self._clock.monotonic(), expression_type, kept)
        compensated.move_to_end(key)
        if len(compensated) > _MOST_COMPENSATED:
            compensated.popitem(last=False)

    def has_popped(self, group: str, topic: str) -> bool:
        """Return true if the group has popped the topic lately, whether it sends heartbeats or not."""
        popped = self._compensated.get((group, topic))
        return popped is not None and popped.time > self._clock.monotonic() - _COMPENSATED_S

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

    def scan_not_active(self) -> None:
        """Forget expired subscriptions of pops as well."""
        super().scan_not_active()
        since = self._clock.monotonic() - _COMPENSATED_S
        while self._compensated and next(iter(self._compensated.values())).time <= since:
            self._compensated.popitem(last=False)

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


# MQVersion.V3_0_7_SNAPSHOT: older clients do not support offset resets or queries of their offsets.
ASKS_FROM_VERSION = 28

_CPP = "CPP"


def notify_consumer_ids_changed(group: str, connection: Connection) -> None:
    """Notify a client to rebalance the queues of its group."""
    header = NotifyConsumerIdsChangedRequestHeader(group)
    connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))


def reset_consumer_client_offset(channel: ClientChannelInfo, header: ResetOffsetRequestHeader, body: bytes) -> bool:
    """Send a client the new offsets of queues that it consumes; return false if it is too far behind."""
    command = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True)
    return channel.connection.send_oneway(command)


def reset_offset_body(channel: ClientChannelInfo, offsets: Mapping[MessageQueue, int]) -> RemotingSerializable:
    """Return the body of an offset reset in the form that the client's language reads."""
    if channel.language != _CPP:
        return ResetOffsetBody(dict(offsets))
    return ResetOffsetBodyForC(
        [MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, at) for queue, at in offsets.items()]
    )


# Notifications of changed consumer groups (o.a.r.broker.client.DefaultConsumerIdsChangeListener).
#
# Each change concerns all clients of the group: a group of n clients that leave one by one would take n * n
# notifications. So changes that come close together are coalesced, and the pause between notifications grows with the
# group.

# A notification takes about 15 µs of the loop, so that no group takes more than 2 % of it.
PAUSE_PER_CLIENT_S = 0.001
# Seconds between checks of clients that are behind.
BEHIND_PERIOD_S = 1.0
RETRY_S = 1.0
# Notifications before the loop serves others.
_AT_A_TIME = 200


class ConsumerIdsChangeListener:
    """Notifies the clients of changed groups soon, and clients that are behind once they have caught up.

    For a client that is behind, the groups to notify are kept, not the bytes to send.

    Args:
        config: ``notifyConsumerIdsChangedEnable``.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._changed: dict[str, ConsumerGroupInfo] = {}
        self._behind: dict[Connection, dict[str, ConsumerGroupInfo]] = {}
        self._wake = asyncio.Event()
        self._tasks = TaskOwner("ConsumerIdsChangeListener")

    async def start(self) -> None:
        self._tasks.whenever(self._notify_next, RETRY_S, "notify")

    async def stop(self) -> None:
        await self._tasks.stop()

    def group_changed(self, info: ConsumerGroupInfo) -> None:
        """Schedule notifications of the clients that the group has by then."""
        if self._config.notify_consumer_ids_changed_enable:
            self._changed[info.group_name] = info
            self._wake.set()

    async def _notify_next(self) -> float:
        await self._wait()
        self._wake.clear()
        await self._notify_due()
        return 0.0

    async def _wait(self) -> None:
        """Wait for the next change, or until a group or client is due."""
        now = asyncio.get_running_loop().time()
        pauses = [info.notify_again_at - now for info in self._changed.values()]
        if self._behind:
            pauses.append(BEHIND_PERIOD_S)
        try:
            async with asyncio.timeout(min(pauses, default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _notify_due(self) -> None:
        self._notify_caught_up()
        loop = asyncio.get_running_loop()
        sent = 0
        for group, info in list(self._changed.items()):
            if info.notify_again_at > loop.time():
                continue
            del self._changed[group]
            info.notify_again_at = loop.time() + len(info.channels) * PAUSE_PER_CLIENT_S
            for connection in list(info.channels):
                self._notify(info, connection)
                sent += 1
                if sent % _AT_A_TIME == 0:
                    await asyncio.sleep(0)

    def _notify(self, info: ConsumerGroupInfo, connection: Connection) -> None:
        if connection.is_behind:
            self._behind.setdefault(connection, {})[info.group_name] = info
        else:
            notify_consumer_ids_changed(info.group_name, connection)

    def _notify_caught_up(self) -> None:
        for connection in [each for each in self._behind if not (each.is_open and each.is_behind)]:
            for group, info in self._behind.pop(connection).items():
                if connection in info.channels:
                    notify_consumer_ids_changed(group, connection)
