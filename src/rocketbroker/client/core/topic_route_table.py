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
from rocketbroker.common.errors import RemoteProtocolError, RemotingTimeoutError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

FetchRoute = Callable[[str], Awaitable[TopicRouteData]]


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


class TopicRouteTable:
    """Routes by topic.

    Args:
        fetch: asks a name server; raises TopicRouteError for an unknown topic.
        refresh_interval_s: seconds between refreshes of known routes (pollNameServerInterval).
        default_topic_queue_nums: how many queues of each broker a topic gets that does not exist yet.
        on_change: called when a refresh finds a changed route.
        has_brokers: says, for an error, if a broker is registered.
    """

    def __init__(
        self,
        fetch: FetchRoute,
        *,
        refresh_interval_s: float = 30.0,
        default_topic_queue_nums: int = 4,
        on_change: Callable[[], None] | None = None,
        has_brokers: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._fetch = fetch
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
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("topic-route-table")

    async def start(self) -> None:
        """Begin to refresh."""
        self._tasks.every(self._refresh_interval_s, self.refresh, "refresh")

    async def stop(self) -> None:
        """Stop refreshing."""
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
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._fetches[topic] = self._tasks.start(self._fetch_noted(topic), f"fetch {topic}")
        done, _ = await asyncio.wait([fetch], timeout=timeout_s)
        if not done:
            raise RemotingTimeoutError(
                f"no route of topic {topic} within {timeout_s or 0.0:.3g} s: the name servers have not answered yet"
            )
        if fetch.cancelled():
            raise NameServerError(f"no route of topic {topic}: the client is closed")
        found = fetch.result()
        if isinstance(found, TopicRoute):
            return found
        raise found.with_traceback(None)  # each waiter has a traceback of its own

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

        Raises:
            TopicRouteError: the topic is unknown and no broker creates topics, or no queue of it can be written.
            NameServerError: no name server answers.
            RemotingTimeoutError: none has answered in time.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        route = self.known_publish_route(topic)
        if route is None:
            try:
                route = await self._fetched(topic, timeout_s)
            except TopicRouteError:
                left_s = None if timeout_s is None else timeout_s - (loop.time() - began)
                route = await self._fallback(topic, left_s)
        if not route.publish_queues:
            raise TopicRouteError(f"topic {topic} has no queue that can be written; check its perm and its brokers")
        return route

    async def _fallback(self, topic: str, timeout_s: float | None) -> TopicRoute:
        try:
            template = await self._fetched(AUTO_CREATE_TOPIC_KEY_TOPIC, timeout_s)
        except TopicRouteError:
            reason = (
                "no broker creates topics by itself: create it by mqadmin updateTopic, or set autoCreateTopicEnable"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if self._has_brokers is not None and not await self._has_brokers():
                        reason = "no broker is registered at the name servers: start one, or check its namesrvAddr"
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

    async def refresh(self) -> None:
        """Refresh all known routes; log a failure and keep the old route."""
        for topic in list(self._routes):
            await self.refresh_topic(topic)

    async def refresh_topic(self, topic: str, timeout_s: float | None = None) -> None:
        """Refresh one route; log a failure and keep the old route. After ``timeout_s`` it is refreshed behind this."""
        known = self._routes.get(topic)
        refreshing = self._tasks.start(self._refresh(topic, known), f"refresh {topic}")
        await asyncio.wait([refreshing], timeout=timeout_s)

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
