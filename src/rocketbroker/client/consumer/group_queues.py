"""Subscriptions of a group's member, and the queues that it gets by them."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from weakref import WeakSet

from rocketbroker.client.consumer.consumer_settings import ConsumerSettings
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.consumer.process_queue_table import ProcessQueueTable, QueueLocks, StartOffset
from rocketbroker.client.consumer.pull_api_wrapper import PullAPIWrapper, check_filter
from rocketbroker.client.consumer.pull_message_service import PullMessageService
from rocketbroker.client.consumer.rebalance import RebalanceImpl, RebalanceService
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientStateError, SubscriptionError, TopicRouteError
from rocketbroker.client.core.message import check_topic
from rocketbroker.client.core.pull_result import MessageSelector, selector_of, subscription_data
from rocketbroker.client.core.requests import FailureLog
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import ConsumerData, SubscriptionData
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)

# Seconds in which another consumer may subscribe to what the first one has.
_GRACE_S = 10.0
#: Consumers of this process by name servers and group. Brokers take the last heartbeat of a group for all its members.
members_by_group: dict[tuple[tuple[str, ...], str], WeakSet["Subscriptions"]] = {}


class Subscriptions:
    """Topics and filters of one consumer, from its start to its close.

    Args:
        name_servers: addresses of the name servers.
        group: the consumer group.
        clock: gives subscriptions their version.
    """

    def __init__(self, name_servers: tuple[str, ...], group: str, clock: Clock) -> None:
        self._key = (name_servers, group)
        self._group = group
        self._clock = clock
        # Times since which others have topics that this consumer lacks, and those that were warned of.
        self._missing_since: dict[str, float] = {}
        self._warned: set[str] = set()
        self.by_topic: dict[str, SubscriptionData] = {}

    def join(self) -> None:
        """Compare this consumer with the others from now on.

        Raises:
            SubscriptionError: another one has a topic with another filter.
        """
        for subscription in self.by_topic.values():
            self._check(subscription.topic, subscription.sub_string, subscription.expression_type)
        members_by_group.setdefault(self._key, WeakSet()).add(self)

    def leave(self) -> None:
        """Compare this consumer no longer."""
        members = members_by_group.get(self._key)
        if members is not None:
            members.discard(self)
            if not members:
                del members_by_group[self._key]

    def add(self, topic: str, selector: MessageSelector) -> SubscriptionData:
        """Subscribe to a topic, or replace its filter; return the subscription.

        Raises:
            SubscriptionError: another consumer of the group has the topic with another filter.
        """
        self._check(topic, selector.expression, selector.expression_type)
        added = self.by_topic[topic] = subscription_data(topic, selector, self._clock.time_ms())
        return added

    def remove(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self.by_topic.pop(topic, None)

    def warn_of_missing_topics(self) -> None:
        """Log once each topic that another consumer of the group has and this one lacks for some seconds.

        Consumers that subscribe alike do so one after the other.
        """
        now = self._clock.monotonic()
        found = {topic for other in members_by_group.get(self._key, ()) for topic in other.by_topic}
        missing = found - self.by_topic.keys() - self._warned
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        for topic in sorted(topic for topic in missing if now >= self._missing_since[topic] + _GRACE_S):
            self._warned.add(topic)
            log.warning(
                "two consumers of group %s in this process differ: one subscribes to %s, the other does not, so a "
                "part of its messages is not consumed; give all members of a group the same subscriptions",
                self._group,
                topic,
            )

    def _check(self, topic: str, expression: str, expression_type: str) -> None:
        for other in members_by_group.get(self._key, ()):
            known = other.by_topic.get(topic)
            if other is self or known is None:
                continue
            if (known.sub_string, known.expression_type) != (expression, expression_type):
                raise SubscriptionError(
                    f"group {self._group} already consumes topic {topic} in this process by "
                    f"{known.expression_type} {known.sub_string!r}, not by {expression_type} {expression!r}; "
                    "give all members of a group the same subscription, or use another group"
                )


_PULL_TIMEOUT_S = 10.0
# Seconds between refreshes of the routes after a connection was lost, and their number.
_WATCH_INTERVAL_S = 2.0
_WATCH_TIMES = 30
# Seconds between refreshes of the route of a new topic, until the regular ones find the rest.
_NEW_TOPIC_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class GroupQueues:
    """The queues of one member: allocated by rebalances, pulled, and their offsets persisted.

    Args:
        client: connections, routes and heartbeats.
        group: the consumer group.
        settings: the settings.
        offsets: store of the consumed offsets.
        stats: counts pulls.
        clock: source of time.
        put: takes pulled messages.
        skip: called when the filter skips messages of a queue of which nothing is held.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a member of a group needs
        self,
        *,
        client: ClientInstance,
        group: str,
        settings: ConsumerSettings,
        offsets: OffsetStore,
        stats: ConsumerStats,
        clock: Clock,
        put: Callable[[ProcessQueue, Iterable[MessageExt]], None],
        skip: Callable[[ProcessQueue], None],
    ) -> None:
        self._client = client
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._started = False
        self._heartbeat_due = True
        self._routes_due = False
        self._watch: asyncio.Task[None] | None = None
        self._missing: set[str] = set()
        self._followed: set[str] = set()
        self._assigned: dict[str, list[MessageQueue]] | None = None
        self.subscriptions = Subscriptions(client.name_server.source, group, clock)
        self._start_offset = StartOffset(settings.consume_from_where, settings.consume_timestamp_ms, client.offsets)
        locks = QueueLocks(client, group) if settings.locks_queues else None
        held_bytes = HeldBytes(settings.flow_control or FlowControl())
        self.hold_pulls = held_bytes.hold_pulls
        self.table = ProcessQueueTable(offsets, self._start_offset, held_bytes, clock, self._pull, locks)
        self._pulls = PullMessageService(
            pull_api=PullAPIWrapper(client, group, _PULL_TIMEOUT_S),
            subscriptions=self.subscriptions.by_topic,
            held_bytes=held_bytes,
            stats=stats,
            clock=clock,
            batch_size=settings.pull_batch_size,
            put=put,
            skip=skip,
            move=self.table.move,
            damaged_retry_s=settings.damaged_message_retry_s,
            offsets=client.offsets,
        )
        self._rebalance_impl = RebalanceImpl(client, group, settings.allocation(), settings.message_model)
        self._rebalances = RebalanceService(self._rebalance, settings.rebalance_interval_s)
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("group-queues")

    async def subscribe(self, topic: str, expression: str | MessageSelector) -> None:
        """Subscribe, and take the queues if the consumer is started; errors as in PushConsumer.subscribe."""
        if self._assigned is not None:
            raise ClientStateError(f"consumer {self._group} has assigned queues; use subscribe or assign, not both")
        check_topic(topic)
        selector = selector_of(expression)
        known = self.subscriptions.by_topic.get(topic)
        added = self.subscriptions.add(topic, selector)
        if not self._started:
            return
        try:
            await self._check(added)
        except RocketBrokerError:
            # Another call may have replaced or removed the subscription since.
            if self.subscriptions.by_topic.get(topic) is added:
                self.subscriptions.remove(topic)
                if known is not None:
                    self.subscriptions.by_topic[topic] = known
            raise
        self.join()
        await self._rebalances.now()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume given queues, whoever else is in the group; replaces those given before.

        Raises:
            ClientStateError: the consumer has subscriptions.
        """
        if self._assigned is None and self.subscriptions.by_topic:
            raise ClientStateError(f"consumer {self._group} has subscriptions; use subscribe or assign, not both")
        assigned: dict[str, list[MessageQueue]] = {topic: [] for topic in self._assigned or ()}
        for queue in queues:
            assigned.setdefault(queue.topic, []).append(queue)
        self._assigned = assigned
        for topic in assigned.keys() - self.subscriptions.by_topic.keys():
            self.subscriptions.add(topic, MessageSelector.by_tag("*"))
        if self._started:
            self.join()
            await self._rebalances.now()

    def subscribe_to_retries(self, topic: str) -> None:
        """Subscribe to the retry topic of the group."""
        self.subscriptions.add(topic, MessageSelector.by_tag("*"))

    async def unsubscribe(self, topic: str) -> None:
        """Give up the queues of a topic."""
        self.subscriptions.remove(topic)
        self._followed.discard(topic)
        self.join()
        await self.table.update(topic, ())
        await self._rebalances.now()

    def join(self) -> None:
        """Put the subscriptions into the heartbeats."""
        self._heartbeat_due = True
        self._client.heartbeats.register_consumer(
            ConsumerData(
                self._group,
                self._settings.consume_type,
                self._settings.message_model,
                self._settings.consume_from_where,
                list(self.subscriptions.by_topic.values()),
                unit_mode=self._client.config.unit_mode,
            )
        )

    def rebalance_soon(self) -> None:
        """Rebalance soon, by fresh routes, so that all members share out the same queues."""
        self._routes_due = True
        self._rebalances.wakeup()

    def connection_lost(self) -> None:
        """Send a heartbeat and renew the locks soon; watch for the broker to come back."""
        self._heartbeat_due = True
        self.table.doubt_locks()
        self._rebalances.wakeup()
        if self._started and (self._watch is None or self._watch.done()):
            self._watch = self._tasks.start(self._watch_routes(), "watch-routes")

    async def _watch_routes(self) -> None:
        """Refresh the routes often for a while: a broker that restarts leaves them, and is back in seconds."""
        for _ in range(_WATCH_TIMES):
            await asyncio.sleep(_WATCH_INTERVAL_S)
            await self._refresh_routes()

    async def _follow(self, topic: str) -> None:
        """Refresh the route of a topic that was just found: its other brokers may get it, or register it, later."""
        for pause_s in _NEW_TOPIC_PAUSES_S:
            await asyncio.sleep(pause_s)
            if topic not in self.subscriptions.by_topic:
                break
            await self._client.routes.refresh_topic(topic)

    async def _refresh_routes(self) -> None:
        topics = self.subscriptions.by_topic.keys() - self._missing
        await asyncio.gather(*map(self._client.routes.refresh_topic, topics))

    async def start(self) -> None:
        """Take the queues of all topics, and start to rebalance and to persist offsets.

        Raises:
            SubscriptionError, TopicRouteError, BrokerResponseError: as in PushConsumer.subscribe.
        """
        self.subscriptions.join()
        self._started = True
        for subscription in list(self.subscriptions.by_topic.values()):
            if not subscription.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                await self._check(subscription)
        await self.table.start()
        await self._rebalances.now()
        await self._rebalances.start()
        self._tasks.every(self._settings.persist_interval_s, self.persist, "persist")

    async def stop_pulling(self) -> None:
        """Take no more queues and messages."""
        self._started = False
        self.subscriptions.leave()
        await stop_all(self._rebalances.stop, self.table.stop_pulling)

    async def stop(self) -> None:
        """Persist the offsets and release the queues."""
        await stop_all(self._tasks.stop, self.table.stop)

    async def persist(self) -> None:
        """Persist the offsets of all queues."""
        await self._offsets.persist(list(self.table.queues))

    async def _pull(self, held: ProcessQueue) -> None:
        await self._pulls.run(held)

    async def _check(self, subscription: SubscriptionData) -> None:
        """Check that a topic exists, if that is required, and that its brokers can apply the filter."""
        try:
            await check_filter(self._client, self._group, subscription)
        except TopicRouteError:
            if self._settings.require_topic:
                raise

    # Members do not talk to each other: each asks a broker for the list of members, and takes what the same strategy
    # gives it from the same sorted lists. For a while these lists differ: a member that joins is not known to all
    # brokers yet, a route is old, a broker restarts. Two members then have one queue, or none has it. That loses
    # nothing, since a queue is taken at the group's offset, and committed before it is given up; what both pull comes
    # twice, and an orderly consumer takes no queue without the broker's lock. What keeps the time short: a heartbeat
    # goes out before the list is asked for, so that this member is in it; routes are fresh when members come and go, so
    # that all share out the same queues; and a rebalance that lacked something is repeated within a second.
    async def _rebalance(self) -> bool:
        """Rebalance all topics; return false if one is not available yet."""
        if not self._started:
            return True
        self.subscriptions.warn_of_missing_topics()
        topics = list(self.subscriptions.by_topic)
        if self._routes_due:
            self._routes_due = False
            await self._refresh_routes()
        complete = not self.table.has_doubtful_locks or await self.table.renew_locks()
        for topic in topics:
            try:
                complete &= await self._rebalance_topic(topic)
            except TopicRouteError:
                complete = False
                if topic not in self._missing:
                    self._missing.add(topic)
                    self._followed.discard(topic)
                    self._start_offset.begin_at_first(topic)
                    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                        log.warning("topic %s does not exist yet; group %s waits for it", topic, self._group)
            except RocketBrokerError as error:
                complete = False
                self._failures.warning("rebalance of topic %s for group %s failed: %s", topic, self._group, error)
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        await self._client.routes.route(topic)
        if self._heartbeat_due:
            self._heartbeat_due = False
            await self._client.heartbeats.send_to_all()
        if self._assigned is None:
            allocated = await self._rebalance_impl.allocate(topic)
        else:
            allocated = self._assigned[topic]
        if not self._started or topic not in self.subscriptions.by_topic:
            return True  # closed, or unsubscribed from the topic, since the rebalance began
        if topic not in self._followed:
            self._followed.add(topic)
            self._tasks.start(self._follow(topic), f"follow-{topic}")
        self._missing.discard(topic)
        return await self.table.update(topic, allocated)
