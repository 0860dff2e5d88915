"""Routes of topics and addresses of brokers (the route tables of MQClientInstance, TopicPublishInfo).

Routes are fetched when first asked for and refreshed in the background; a refresh that fails keeps the old route.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec

from rocketbroker.client.core.errors import BrokerNotFoundError, NameServerError, TopicRouteError
from rocketbroker.client.core.requests import FailureLog
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, MOST_QUEUES, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.errors import RemoteProtocolError, RemotingTimeoutError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

FetchRoute = Callable[[str], Awaitable[TopicRouteData]]

# Reasons that a topic has no route.
_NOT_CREATED = "no broker creates topics by itself: create it by mqadmin updateTopic, or set autoCreateTopicEnable"
_NO_BROKER = "no broker is registered at the name servers: start one, or check its namesrvAddr"
_NOT_KNOWN = (
    "it was not found out in time whether a broker is registered: look by mqadmin clusterList, or raise the time limit"
)


class TopicRoute(msgspec.Struct, frozen=True):
    """The route of one topic: its queues in order, and the addresses of its brokers by name and id."""

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    is_fallback: bool = False

    @property
    def has_other_brokers(self) -> bool:
        """True if messages can go to more than one broker."""
        return self.publish_queues[0].broker_name != self.publish_queues[-1].broker_name


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return the queues of a route; only brokers that have a master are written to.

    Raises:
        RemoteProtocolError: too many queues, or a wrong order configuration.
    """
    if sum(max(each.read_queue_nums, each.write_queue_nums, 0) for each in data.queue_datas) > MOST_QUEUES:
        raise RemoteProtocolError(f"the route of topic {topic} has over {MOST_QUEUES:,} queues")
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    publish: list[MessageQueue] = []
    for queues in sorted(data.queue_datas, key=lambda each: each.broker_name):
        name = queues.broker_name
        if queues.perm & PERM_WRITE and MASTER_ID in addresses.get(name, {}):
            publish += (MessageQueue(topic, name, index) for index in range(queues.write_queue_nums))
    if data.order_topic_conf:
        publish = ordered_queues(topic, data.order_topic_conf)
    return TopicRoute(topic, tuple(publish), tuple(data.subscribe_queues(topic)), addresses)


def ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    """Return the queues of an ordered topic, fixed while brokers come and go: ``broker:number;broker:number``.

    Raises:
        RemoteProtocolError: the text is not of this form.
    """
    queues: list[MessageQueue] = []
    for part in filter(None, order_topic_conf.split(";")):
        name, _, number = part.partition(":")
        if not name or not number.isascii() or not number.isdigit():
            raise RemoteProtocolError(f"orderTopicConf of {topic} has {part!r} instead of broker:number")
        if len(number) > 5 or len(queues) + int(number) > MOST_QUEUES:
            raise RemoteProtocolError(f"orderTopicConf of {topic} has over {MOST_QUEUES:,} queues")
        queues += [MessageQueue(topic, name, index) for index in range(int(number))]
    return queues


def _left_s(deadline: float | None) -> float | None:
    """Return the seconds until a time of the event loop, None for no limit."""
    return None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)


class TopicRouteTable:
    """Routes by topic.

    Args:
        fetch: asks a name server; raises TopicRouteError for an unknown topic.
        refresh_interval_s: seconds between refreshes of known routes (pollNameServerInterval).
        default_topic_queue_nums: how many queues of each broker a topic gets that does not exist yet.
        on_change: called when a refresh finds a changed route.
        has_brokers: says, for an error or a wait, if a broker is registered; None if that cannot be found out.
        lookup_interval_s: fewest seconds between two lookups of a topic after failed sends. A broker that is down fails
            thousands of sends a second; a lookup for each would load the name servers just when all clients ask them.
            While no broker is registered, senders look for one after an eighth of this, then after twice as long each
            time, up to this.
        clock: times these lookups.
    """

    def __init__(
        self,
        fetch: FetchRoute,
        *,
        refresh_interval_s: float = 30.0,
        default_topic_queue_nums: int = 4,
        on_change: Callable[[], None] | None = None,
        has_brokers: Callable[[], Awaitable[bool | None]] | None = None,
        lookup_interval_s: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._fetch = fetch
        self._lookup_interval_s = lookup_interval_s
        self._clock = clock or SystemClock()
        self._has_brokers = has_brokers
        self._on_change = on_change
        self._refresh_interval_s = refresh_interval_s
        self.default_topic_queue_nums = default_topic_queue_nums
        self._routes: dict[str, TopicRoute] = {}
        # The last addresses of each broker. A name server that has just restarted gives routes without the brokers that
        # have not registered again: what was consumed from them is committed nevertheless.
        self._addresses: dict[str, Mapping[int, str]] = {}
        # Requests under way. All who need a route wait for the same one, each within its own limit.
        self._fetches: dict[str, asyncio.Task[TopicRoute | RocketBrokerError]] = {}
        self._refreshes: dict[str, asyncio.Task[None]] = {}
        # Earliest time of the next lookup after a failed send, and the lookups that are planned for then.
        self._next_lookup: dict[str, float] = {}
        self._planned: dict[str, asyncio.Task[None]] = {}
        # Shared by all senders: the lookup of brokers that is under way, and the lookups until a broker is registered.
        self._broker_lookup: asyncio.Task[bool | None] | None = None
        self._registration: asyncio.Task[None] | None = None
        self._waiting_senders = 0
        # While no broker is registered: earliest time of the next lookup, and the pause after it.
        self._next_broker_lookup = 0.0
        self._broker_pause_s = 0.0
        self._is_stopped = False
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("topic-route-table")

    async def start(self) -> None:
        """Begin to refresh."""
        self._tasks.every(self._refresh_interval_s, self.refresh, "refresh")

    async def stop(self) -> None:
        """Stop refreshing; no name server is asked from now on."""
        self._is_stopped = True
        await self._tasks.stop()

    async def route(self, topic: str, timeout_s: float | None = None) -> TopicRoute:
        """Return the route of a topic that exists.

        Raises:
            TopicRouteError: the topic is unknown.
            NameServerError: no name server answers.
            RemotingTimeoutError: none has answered in time.
        """
        known = self._routes.get(topic)
        if known is not None and not known.is_fallback:
            return known
        return await self._fetched(topic, timeout_s)

    async def _fetched(self, topic: str, timeout_s: float | None) -> TopicRoute:
        """Wait for the fetch of a route; raise its error."""
        if self._is_stopped:
            raise self._closed(topic)
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._fetches[topic] = self._tasks.start(self._fetch_noted(topic), f"fetch {topic}")
        done, _ = await asyncio.wait([fetch], timeout=timeout_s)
        if not done:
            raise RemotingTimeoutError(
                f"no route of topic {topic} within {timeout_s or 0.0:.3g} s: the name servers have not answered yet"
            )
        if fetch.cancelled():
            raise self._closed(topic)
        found = fetch.result()
        if isinstance(found, TopicRoute):
            return found
        raise found.with_traceback(None)  # each waiter has a traceback of its own

    def _closed(self, topic: str) -> NameServerError:
        return NameServerError(f"no route of topic {topic}: the client is closed")

    async def _fetch_noted(self, topic: str) -> TopicRoute | RocketBrokerError:
        """Fetch and keep a route; return the error, which has any number of readers, none included."""
        try:
            found = topic_route(topic, await self._fetch(topic))
        except RocketBrokerError as error:
            return error
        finally:
            del self._fetches[topic]
        known = self._routes.get(topic)
        self._addresses.update(found.addresses)
        if found == known:
            return known
        self._routes[topic] = found
        return found

    def known_publish_route(self, topic: str) -> TopicRoute | None:
        """Return the route to send by if it is known: a plain call, since each send makes it."""
        route = self._routes.get(topic)
        return route if route is not None and route.publish_queues else None

    async def publish_route(self, topic: str, timeout_s: float | None = None) -> TopicRoute:
        """Return the route to send by: of the topic itself, else that of TBW102, through which brokers create topics.

        A restart of the only broker takes each route from the name servers, which then know no broker at all. A route
        with a limit is looked up again once one is registered. RocketMQ's client raises its error at once.

        Raises:
            TopicRouteError: the topic is unknown and no broker creates topics, or no queue of it can be written.
            NameServerError: no name server answers.
            RemotingTimeoutError: none has answered in time.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        route = self.known_publish_route(topic)
        while route is None:
            try:
                route = await self._fetched(topic, _left_s(deadline))
            except TopicRouteError:
                route = await self._fallback(topic, deadline)
        if not route.publish_queues:
            raise TopicRouteError(f"topic {topic} has no queue that can be written; check its perm and its brokers")
        return route

    async def _fallback(self, topic: str, deadline: float | None) -> TopicRoute | None:
        """Return a route by that of TBW102, or None if a broker has registered only now."""
        try:
            template = await self._fetched(AUTO_CREATE_TOPIC_KEY_TOPIC, _left_s(deadline))
        except TopicRouteError:
            reason = await self._await_broker(deadline)
            if reason is None:
                return None
            raise TopicRouteError(f"No route info of this topic: {topic}; {reason}") from None
        finally:
            self._routes.pop(AUTO_CREATE_TOPIC_KEY_TOPIC, None)  # fetched again for each new topic
        known = self._routes.get(topic)
        if known is not None and known.publish_queues:
            return known
        limit = self.default_topic_queue_nums

        def of_topic(queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
            few = [queue for queue in queues if queue.queue_id < limit]
            return tuple(MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in few)

        found = self._routes[topic] = TopicRoute(
            topic,
            of_topic(template.publish_queues),
            of_topic(template.subscribe_queues),
            template.addresses,
            is_fallback=True,
        )
        return found

    async def _await_broker(self, deadline: float | None) -> str | None:
        """Wait for a broker if none is registered; return None after that, else why a topic has no route."""
        has_brokers = self._has_brokers
        if has_brokers is None:
            return _NOT_CREATED
        reason = _NOT_KNOWN
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                if deadline is None or not self._is_without_brokers():
                    is_registered = await self._look_up_brokers(has_brokers)
                    if is_registered:
                        return _NOT_CREATED
                    if is_registered is None:
                        return None if self._is_stopped else _NOT_KNOWN
                reason = _NO_BROKER
                if deadline is not None:
                    await self._wait_for_broker(has_brokers)
                    return None
        return reason

    def _is_without_brokers(self) -> bool:
        """Return true if the last lookup found no broker and the next one is not due yet, or is left to the waiters."""
        return self._registration is not None or self._clock.monotonic() < self._next_broker_lookup

    async def _wait_for_broker(self, has_brokers: Callable[[], Awaitable[bool | None]]) -> None:
        """Wait until a broker is registered, or the table is stopped; the lookups end with the last sender's wait."""
        if self._is_stopped:
            return
        if self._registration is None:
            self._registration = self._tasks.start(self._look_until_registered(has_brokers), "await a broker")
        registration = self._registration
        self._waiting_senders += 1
        try:
            await asyncio.wait([registration])
        finally:
            self._waiting_senders -= 1
            if self._registration is registration and (registration.done() or not self._waiting_senders):
                registration.cancel()
                self._registration = None

    async def _look_until_registered(self, has_brokers: Callable[[], Awaitable[bool | None]]) -> None:
        is_registered: bool | None = False
        while not is_registered:
            # A name server that does not answer says nothing about brokers: look again.
            is_known = is_registered is not None
            pause_s = self._next_broker_lookup - self._clock.monotonic() if is_known else self._lookup_interval_s
            await asyncio.sleep(max(pause_s, 0.0))
            is_registered = await self._look_up_brokers(has_brokers)

    async def _look_up_brokers(self, has_brokers: Callable[[], Awaitable[bool | None]]) -> bool | None:
        """Return true if a broker is registered, None if that is not known; all who ask meanwhile share the request."""
        if self._is_stopped:
            return None
        lookup = self._broker_lookup
        if lookup is None:
            lookup = self._broker_lookup = self._tasks.start(self._brokers_noted(has_brokers), "look up brokers")
        await asyncio.wait([lookup])
        return None if lookup.cancelled() else lookup.result()

    async def _brokers_noted(self, has_brokers: Callable[[], Awaitable[bool | None]]) -> bool | None:
        """Look for brokers; plan the next lookup if there is none."""
        try:
            is_registered = await has_brokers()
        finally:
            self._broker_lookup = None
        if is_registered:
            self._next_broker_lookup = self._broker_pause_s = 0.0
        elif is_registered is not None:
            self._broker_pause_s = min(2 * self._broker_pause_s or self._lookup_interval_s / 8, self._lookup_interval_s)
            self._next_broker_lookup = self._clock.monotonic() + self._broker_pause_s
        return is_registered

    async def refresh(self) -> None:
        """Refresh all known routes; log a failure and keep the old route."""
        now = self._clock.monotonic()
        self._next_lookup = {topic: at for topic, at in self._next_lookup.items() if at > now}
        for topic in list(self._routes):
            await self.refresh_topic(topic)

    async def refresh_topic(self, topic: str, timeout_s: float | None = None) -> None:
        """Refresh one route; log a failure and keep the old route. After ``timeout_s`` it is refreshed behind this."""
        if self._is_stopped:
            return
        refreshing = self._refreshes.get(topic)
        if refreshing is None:
            refreshing = self._refreshes[topic] = self._tasks.start(
                self._refresh(topic, self._routes.get(topic)), f"refresh {topic}"
            )
            refreshing.add_done_callback(lambda _: self._refreshes.pop(topic, None))
        await asyncio.wait([refreshing], timeout=timeout_s)

    async def refresh_after_failure(self, topic: str, timeout_s: float, turn_s: float = 0.0) -> None:
        """Refresh a route by which a send failed, at most once in ``lookup_interval_s`` for all senders of the topic.

        The first failure makes a lookup at once. Those that come sooner than an interval later share one more lookup,
        planned for then: a change just after the last lookup is known by it. A lookup that is under way may have been
        answered before the failure, so one is planned behind it too.

        Args:
            topic: the topic of the send.
            timeout_s: most seconds to wait for a name server, after which the route is refreshed behind this.
            turn_s: most seconds to wait for a planned lookup, its answer included.
        """
        if self._is_stopped:
            return
        pause_s = self._next_lookup.get(topic, 0.0) - self._clock.monotonic()
        running, planned = self._refreshes.get(topic), self._planned.get(topic)
        if running is None and planned is None and pause_s <= 0:
            await self._look_up(topic, timeout_s)
            return
        if planned is None:
            if pause_s <= 0:  # the periodic refresh is under way
                pause_s = self._lookup_interval_s
            planned = self._planned[topic] = self._tasks.start(
                self._look_up_later(topic, pause_s), f"look up {topic} later"
            )
        if running is not None:
            await asyncio.wait([running], timeout=timeout_s)
        elif turn_s > 0:
            await asyncio.wait([planned], timeout=min(turn_s, max(pause_s, 0.0) + timeout_s))

    async def _look_up_later(self, topic: str, pause_s: float) -> None:
        try:
            await asyncio.sleep(pause_s)
            if running := self._refreshes.get(topic):
                await asyncio.wait([running])  # it began before the failures that this lookup is for
        finally:
            del self._planned[topic]
        await self._look_up(topic, None)

    async def _look_up(self, topic: str, timeout_s: float | None) -> None:
        self._next_lookup[topic] = self._clock.monotonic() + self._lookup_interval_s
        await self.refresh_topic(topic, timeout_s)

    async def _refresh(self, topic: str, known: TopicRoute | None) -> None:
        try:
            route = await self._fetched(topic, None)
        except RocketBrokerError as error:
            if known is None or not known.is_fallback:
                self._failures.warning("the route of %s was not refreshed: %s", topic, error)
            return
        if route is not known and self._on_change is not None:
            self._on_change()

    def addresses(self, *, masters_only: bool) -> set[str]:
        """Return the addresses of all brokers in known routes."""
        found: set[str] = set()
        for route in self._routes.values():
            for by_id in route.addresses.values():
                found.update(
                    address for broker_id, address in by_id.items() if broker_id == MASTER_ID or not masters_only
                )
        return found

    def broker_address(self, queue: MessageQueue, broker_id: int = MASTER_ID, *, exactly: bool = True) -> str:
        """Return the address of a queue's broker; unless ``exactly``, another of its name will do when that id is gone.

        A broker that has left the route keeps its last address.

        Raises:
            BrokerNotFoundError: no such broker in the route of the queue's topic.
        """
        route = self._routes.get(queue.topic)
        by_id = route.addresses.get(queue.broker_name) if route is not None else None
        if by_id is None:
            by_id = self._addresses.get(queue.broker_name, {})
        address = by_id.get(broker_id)
        if address is None and not exactly and by_id:
            address = by_id[min(by_id)]
        if address is None:
            raise BrokerNotFoundError(f"broker {queue.broker_name} (id {broker_id}) is in no route of {queue.topic}")
        return address
