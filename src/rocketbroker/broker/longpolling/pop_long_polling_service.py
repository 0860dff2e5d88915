"""Holding of pops until messages arrive (org.apache.rocketmq.broker.longpolling.PopLongPollingService).

A held pop waits for one queue of a topic or, with queue id -1, for all of them. Each message goes to one consumer of a
group, so it wakes one pop that waits for its queue and one that waits for all queues, the oldest first. A woken pop is
run again, and held again if another one was faster.
"""

from collections.abc import Callable
from typing import Any, Final

from rocketbroker.broker.longpolling.held_requests import HeldRequest, HeldRequests
from rocketbroker.codec.message.pop_info import ALL_QUEUES, pop_retry_topics
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

# Pops that are woken before those have run: as many as run in one turn of the event loop.
_WOKEN_AT_A_TIME: Final = 64


class PopRequest(HeldRequest):
    """A held pop of a group; ``has_match`` looks at all queues that the pop reads."""

    __slots__ = ("group",)

    def __init__(  # noqa: PLR0913 - a held pop has these parts
        self,
        connection: Connection,
        command: Any,
        topic: str,
        group: str,
        queue_id: int,
        tag_codes: frozenset[int] | None,
        has_match: Callable[[], bool | None] | None = None,
        *,
        filtered_queues: int = 1,
        run: "Callable[[Connection, Any, PopRequest], Answer]",
    ) -> None:
        super().__init__(
            connection, command, topic, queue_id, tag_codes, has_match, run, filtered_queues=filtered_queues
        )
        self.group = group


class _Waiting:
    """Held pops of a group for one queue, or for all.

    Attributes:
        count: number of pops.
        filtered: those that filter by properties and that nothing has taken, oldest first.
    """

    __slots__ = ("_by_tags", "count", "filtered")

    def __init__(self) -> None:
        self.count = 0
        self.filtered: dict[PopRequest, None] = {}
        # Nearly always one entry: the consumers of a group have one subscription.
        self._by_tags: dict[frozenset[int] | None, dict[PopRequest, None]] = {}

    def add(self, request: PopRequest) -> None:
        self.count += 1
        if request.has_match is not None:
            self.filtered[request] = None
        else:
            self._by_tags.setdefault(request.tag_codes, {})[request] = None

    def remove(self, request: PopRequest) -> None:
        """Remove a pop that was added, whether it was taken or not."""
        self.count -= 1
        self.filtered.pop(request, None)
        self._take_out(request)

    def take_matching(self, tags_code: int) -> PopRequest | None:
        """Take out the oldest pop that wants a message and does not filter by properties."""
        for codes, requests in self._by_tags.items():
            if codes is None or tags_code in codes:
                return self._take_out(next(iter(requests)))
        return None

    def take(self) -> PopRequest | None:
        """Take out a pop, whatever it wants."""
        for requests in self._by_tags.values():
            return self._take_out(next(iter(requests)))
        return self._take_out_filtered() if self.filtered else None

    def take_filtered(self) -> PopRequest | None:
        """Take out a pop that leaves out messages."""
        for codes, requests in self._by_tags.items():
            if codes is not None:
                return self._take_out(next(iter(requests)))
        return self._take_out_filtered() if self.filtered else None

    def _take_out_filtered(self) -> PopRequest:
        request = next(iter(self.filtered))
        del self.filtered[request]
        return request

    def _take_out(self, request: PopRequest) -> PopRequest:
        requests = self._by_tags.get(request.tag_codes)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._by_tags[request.tag_codes]
        return request


class _Group:
    """Held pops of a group from one topic, by queue id."""

    __slots__ = ("name", "queues", "retry_topics", "topic")

    def __init__(self, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self.retry_topics = pop_retry_topics(topic, name)
        self.queues: dict[int, _Waiting] = {}


class PopLongPollingService:
    """Holds pops and has them run again; implements ``store.dispatch.commit_log_dispatcher.MessageArrivingListener``.

    Args:
        config: ``popPollingSize``, ``maxPopPollingSize`` and ``maxSuspendTimeoutMillis``.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        # Topic -> group -> its held pops; no entry is empty.
        self._topics: dict[str, dict[str, _Group]] = {}
        # By name of a retry topic. The first version is ambiguous: group a_b of topic c, and group a of topic b_c.
        self._retries: dict[str, dict[_Group, None]] = {}
        self._requests: HeldRequests[PopRequest] = HeldRequests(self._remove, self._pass_on)
        self.waiting = False

    async def start(self) -> None:
        """Do nothing: the requests bring the work."""

    async def stop(self) -> None:
        """Forget the held pops."""
        self._requests.stop()

    def polling_num(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of held pops of a group for one queue, or for all."""
        waiting = self._find(topic, group, queue_id)
        return 0 if waiting is None else waiting.count

    def suspend(self, request: PopRequest, timeout_ms: int) -> None:
        """Hold a pop, also one that was held before.

        The caller must have found nothing in this step of the event loop: earlier messages wake nobody.

        Args:
            request: the pop.
            timeout_ms: time after which it is run again: the rest of its ``pollTime``, or less if it waits for a queue
                that is popped in order and will be readable again before.

        Raises:
            BrokerResponseError: POLLING_FULL; too many pops are held, for this queue or in total.
        """
        config = self._config
        held = self.polling_num(request.topic, request.group, request.queue_id)
        if held >= config.pop_polling_size:
            raise BrokerResponseError(
                ResponseCode.POLLING_FULL,
                f"popPollingSize: {held:,} pops of group {request.group} wait for topic {request.topic}, queue "
                f"{request.queue_id}; pop again later, use fewer consumers, or raise popPollingSize",
            )
        if not self._requests.has_room(request, config.max_pop_polling_size):
            raise BrokerResponseError(
                ResponseCode.POLLING_FULL,
                f"maxPopPollingSize: {self._requests.weight:,} pops are held and the limit is "
                f"{config.max_pop_polling_size:,}, tags and filters counted, or this address has its share of it; pop "
                "again later, use fewer consumers, or raise maxPopPollingSize",
            )
        groups = self._topics.setdefault(request.topic, {})
        group = groups.get(request.group)
        if group is None:
            group = groups[request.group] = _Group(request.topic, request.group)
            for name in group.retry_topics:
                self._retries.setdefault(name, {})[group] = None
        group.queues.setdefault(request.queue_id, _Waiting()).add(request)
        timeout_ms = min(max(timeout_ms, 0), config.max_suspend_timeout_millis)
        self._requests.hold(request, timeout_ms / 1000)
        self.waiting = True

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake a pop of each group that wants a message."""
        for group in self._topics.get(topic, {}).values():
            for id_ in (ALL_QUEUES, queue_id):
                waiting = group.queues.get(id_)
                if waiting is None:
                    continue
                self._wake(waiting.take_matching(tags_code))
                if waiting.filtered:
                    self._requests.ask(waiting)
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            # The group was given the message before, so no filter is asked.
            for group in self._retries.get(topic, ()):
                self._wake_one(group, *group.queues)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Wake a pop of a group, because a queue has messages left, or is not blocked any more."""
        found = self._topics.get(topic, {}).get(group)
        if found is not None:
            self._wake_one(found, queue_id)

    async def wake_filtered(self) -> None:
        """Run again a pop of each group and queue that leaves out messages, so that it gets past them.

        All have run at the end, but one that reads the disk or whose peer is behind may not be answered yet.
        """
        groups = [group for by_name in self._topics.values() for group in by_name.values()]
        places = [waiting for group in groups for waiting in group.queues.values()]
        for number, waiting in enumerate(places, 1):
            self._wake(waiting.take_filtered())
            if not number % _WOKEN_AT_A_TIME:
                await self._requests.run_ready()
        await self._requests.run_ready()

    def drop(self, connection: Connection, command: Any) -> None:
        """Forget a pop that nobody waits for any more, though its connection is open."""
        self._requests.drop(connection, command)

    def check_grants(self) -> None:
        """Answer the pops of users who have lost the right to them, since policies have changed."""
        self._requests.check_grants()

    def on_close(self, connection: Connection) -> None:
        """Forget the pops of a closed connection."""
        self._requests.on_close(connection)

    def _wake_one(self, group: _Group, *queue_ids: int) -> None:
        """Wake a pop that waits for all queues, else one that waits for one of these."""
        for id_ in (ALL_QUEUES, *queue_ids):
            waiting = group.queues.get(id_)
            request = None if waiting is None else waiting.take()
            if request is not None:
                self._wake(request)
                return

    def _wake(self, request: PopRequest | None) -> None:
        if request is not None:
            self._requests.wake((request,))

    def _pass_on(self, request: PopRequest) -> None:
        """Wake another pop for a message that woke one whose connection is closed."""
        waiting = self._find(request.topic, request.group, request.queue_id)
        if waiting is not None:
            self._wake(waiting.take())

    def _find(self, topic: str, group: str, queue_id: int) -> _Waiting | None:
        found = self._topics.get(topic, {}).get(group)
        return None if found is None else found.queues.get(queue_id)

    def _remove(self, request: PopRequest) -> None:
        groups = self._topics[request.topic]
        group = groups[request.group]
        waiting = group.queues[request.queue_id]
        waiting.remove(request)
        self.waiting = self._requests.weight > 0
        if waiting.count:
            return
        del group.queues[request.queue_id]
        if group.queues:
            return
        del groups[request.group]
        if not groups:
            del self._topics[request.topic]
        for name in group.retry_topics:
            retries = self._retries[name]
            del retries[group]
            if not retries:
                del self._retries[name]
