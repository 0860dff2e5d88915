"""Queues of a cluster as its name servers and brokers show them to a client, without files."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Final, NamedTuple, TypeVar

from rocketbroker.analytics.spark.offset_options import Subscription
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.errors import (
    BrokerAnswerError,
    BrokerNotFoundError,
    NameServerError,
    TopicRouteError,
    broker_error,
)
from rocketbroker.client.core.requests import QueueOffsets, client_request
from rocketbroker.client.core.topic_route_table import TopicRoute, topic_route
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    LMQ_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.common.errors import CheckpointError, RemotingError, RocketBrokerError, StoreError
from rocketbroker.common.lifecycle import TaskOwner

T = TypeVar("T")
K = TypeVar("K")

#: Seconds for which servers that are away are asked again: a broker that restarts recovers its store first.
PATIENCE_S = 120.0
RETRY_S = 1.0
# Limit of a pull: those of other tasks may be on the same network.
_PULL_TIMEOUT_S: Final = 30.0
# Requests under way at once while many queues are looked up.
_AT_ONCE: Final = 128
_HIDDEN_PREFIXES: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, LMQ_PREFIX)


def queue_name(queue: MessageQueue) -> str:
    """Return a queue's name for errors."""
    return f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"


def may_pass(error: RocketBrokerError) -> bool:
    """Return true if the same request may succeed a little later."""
    if isinstance(error, BrokerAnswerError):
        return error.retriable
    return isinstance(error, (RemotingError, NameServerError, BrokerNotFoundError, TopicRouteError))


class QueueEnd(NamedTuple):
    """Offset after the last message; a slave's may be an old one."""

    offset: int
    by_master: bool


class Pulled(NamedTuple):
    """Records of an answer, and the offset after them. Offsets between without a record have no message."""

    body: bytes
    next_offset: int


def record_bounds(body: bytes) -> list[int]:
    """Return where each record of an answer begins, by the sizes that they name, and where the last one ends."""
    bounds = [0]
    while bounds[-1] < len(body):
        at = bounds[-1]
        bounds.append(at + max(int.from_bytes(body[at : at + 4], "big"), MIN_RECORD_SIZE))
    return bounds


class BrokerQueues(AdminClient):
    """Client that looks up queues and pulls from them. It sends no heartbeats, so that no group learns of it.

    A request goes to the master of its queue, or to the slave with the lowest id if there is no master.
    """

    def __init__(self, namesrv_addr: str | ClientConfig) -> None:
        super().__init__(namesrv_addr)
        self._routes: dict[str, TopicRoute] = {}
        self._offsets = QueueOffsets(self._ask_queue)

    async def topics(self, subscription: Subscription) -> Collection[str]:
        """Return the topics of a subscription; for a pattern without those of RocketMQ itself, retries among them."""
        if subscription.topics is not None:
            return subscription.topics
        info = await self.examine_broker_cluster_info()
        own = {*info.broker_addr_table, *info.cluster_addr_table}
        own |= {cluster + REPLY_TOPIC_POSTFIX for cluster in info.cluster_addr_table}
        known = [
            topic
            for topic in await self.fetch_all_topic_list()
            if topic not in own and not topic.startswith(_HIDDEN_PREFIXES) and not is_system_topic(topic)
        ]
        return subscription.chosen(known)

    async def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """Return the queues that can be read; a topic without a route has none."""
        found = await _each(self.read_route, topics)
        return [queue for route in found.values() if route for queue in route.subscribe_queues]

    async def read_route(self, topic: str) -> TopicRoute | None:
        """Ask for the route of a topic, by which its queues are reached from now on."""
        try:
            self._routes[topic] = topic_route(topic, await self.examine_topic_route_info(topic))
        except TopicRouteError:
            self._routes.pop(topic, None)
        return self._routes.get(topic)

    def forget_route(self, topic: str) -> None:
        """Ask for the route of a topic again before the next pull."""
        self._routes.pop(topic, None)

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the first message of each queue."""

        async def of(queue: MessageQueue) -> int:
            return max(await self._offsets.min_offset(queue), 0)

        return await _each(of, queues)

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueEnd]:
        """Return the end of each queue."""

        async def of(queue: MessageQueue) -> QueueEnd:
            return QueueEnd(await self._offsets.max_offset(queue), self._place(queue)[0] == MASTER_ID)

        return await _each(of, queues)

    async def offsets_at(self, times_ms: Iterable[tuple[MessageQueue, int]]) -> dict[tuple[MessageQueue, int], int]:
        """Return the offset of the first message stored at a time or after it, for pairs of queue and time in ms."""
        return await _each(lambda pair: self._offsets.search_offset(*pair), times_ms)

    async def pull(self, queue: MessageQueue, header: PullMessageRequestHeader, broker_id: int) -> tuple[Command, int]:
        """Send a pull to a broker of a queue; return the answer, and the id of the broker that gave it."""
        if queue.topic not in self._routes:
            await self.read_route(queue.topic)
        answered_by, address = self._place(queue, broker_id)
        command = client_request(RequestCode.PULL_MESSAGE, header)
        return await self._remoting.invoke(address, command, _PULL_TIMEOUT_S), answered_by

    async def _ask_queue(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        return await self._invoke(self._place(queue)[1], command)

    def _place(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> tuple[int, str]:
        """Return id and address of the broker with an id, or with the lowest one if it is gone."""
        route = self._routes.get(queue.topic)
        by_id = route.addresses.get(queue.broker_name) if route else None
        if not by_id:
            raise BrokerNotFoundError(f"broker {queue.broker_name} is in no route of topic {queue.topic}")
        found = broker_id if broker_id in by_id else min(by_id)
        return found, by_id[found]


async def _each(work: Callable[[K], Awaitable[T]], items: Iterable[K]) -> dict[K, T]:
    """Do work for each item, for many at once; the first error ends it."""
    results: dict[K, T] = {}
    left = iter(items)

    async def some() -> None:
        for item in left:
            results[item] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results


_CODES: Final = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}


class QueuePuller:
    """Pulls messages of one queue, which exist, from the broker that the last answer suggested.

    Only a master's word counts for messages that are gone: a slave may be behind, or have been set up later.

    Args:
        brokers: the connections.
        queue: the queue.
        group: consumer group that pulls name.
    """

    def __init__(self, brokers: BrokerQueues, queue: MessageQueue, group: str) -> None:
        self._brokers = brokers
        self._queue = queue
        self._group = group
        self._broker_id = MASTER_ID

    async def pull(self, offset: int, count: int) -> Pulled:
        """Return messages from an offset on, up to ``count`` offsets; or none, and where the next ones are.

        A broker that is away is asked again for ``PATIENCE_S``.

        Raises:
            StoreError: the queue does not have the offset.
            BrokerResponseError: the broker refuses.
            RemotingError, ClientError: there is no answer.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            failure: RocketBrokerError
            try:
                found = await self._ask(offset, count)
                if isinstance(found, Pulled):
                    return found
                failure = found
            except RocketBrokerError as error:
                if not may_pass(error):
                    raise
                failure = error
            if asyncio.get_running_loop().time() >= deadline:
                raise failure
            self._broker_id = MASTER_ID
            await asyncio.sleep(RETRY_S)
            self._brokers.forget_route(self._queue.topic)

    async def _ask(self, offset: int, count: int) -> Pulled | StoreError:
        """Send one pull; return an error if the answer has no messages for now."""
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
        )
        answer, broker_id = await self._brokers.pull(self._queue, header, self._broker_id)
        if answer.code not in _CODES:
            raise broker_error(answer.code, answer.remark)
        place = from_ext_fields(answer.header, PullMessageResponseHeader)
        self._broker_id = place.suggest_which_broker_id
        name, following = queue_name(self._queue), place.next_begin_offset
        if answer.code == ResponseCode.SUCCESS and following > offset:
            found = Pulled(bytes(answer.body), following)
            if broker_id == MASTER_ID or len(record_bounds(found.body)) - 1 == following - offset:
                return found
        if broker_id != MASTER_ID:
            return StoreError(
                f"{name}: the slave with id {broker_id} lacks messages from offset {offset} on, and has no master"
            )
        if offset < place.min_offset:
            return Pulled(b"", place.min_offset)
        if offset >= place.max_offset:
            return truncation_error(self._queue, place.max_offset, offset)
        # An offset that an administrator set for the group says nothing about messages.
        if answer.code != ResponseCode.PULL_OFFSET_MOVED and following > offset:
            return Pulled(b"", following)
        return StoreError(f"{name}: the broker has offset {offset}, but does not return its message; see its log")


def truncation_error(queue: MessageQueue, end: int, offset: int) -> CheckpointError:
    """Return the error for a queue that ends before an offset that it had."""
    return CheckpointError(
        f"{queue_name(queue)} ends at {end}, before offset {offset} that the query has reached: its topic was made "
        "again, or its broker has lost the last messages; start with another checkpoint"
    )


# Pulls under way for one queue.
_AHEAD: Final = 16
# Offsets of the first pulls, as consumers ask for; and at most.
_FIRST_COUNT: Final = 32
_MOST_COUNT: Final = 1024
# Pulls in a row that were answered in full, after which the next ones ask for twice as many. Each time that proves too
# many it takes twice as long, up to a limit.
_FULL: Final = 64
_MOST_FULL: Final = 4096
_BATCH_BYTES: Final = 4 << 20


class _Ahead(NamedTuple):
    """Pull of the offsets from ``low`` to before ``high`` under way."""

    low: int
    high: int
    task: asyncio.Task[Pulled | RocketBrokerError]


async def pull_range(
    pull: Callable[[int, int], Coroutine[None, None, Pulled]], low: int, high: int
) -> AsyncGenerator[Pulled, None]:
    """Yield the messages of offsets ``low`` to before ``high`` in order, joined to some megabytes.

    A broker returns few messages at once: by default 32, or 8 if it reads them from disk. So several pulls are under
    way, each from where the one before will probably end. After an answer with fewer messages the rest is pulled next,
    and later pulls ask for as few. Memory is bounded by what the broker returns in ``_AHEAD`` answers.

    Args:
        pull: returns messages from an offset on, up to a number of offsets.
        low: first offset.
        high: offset after the last one.
    """
    tasks, ahead = TaskOwner("pull"), deque[_Ahead]()
    at, count, full, enough = low, _FIRST_COUNT, 0, _FULL
    parts: list[bytes] = []
    size = 0

    async def outcome(offset: int, number: int) -> Pulled | RocketBrokerError:
        try:
            return await pull(offset, number)
        except RocketBrokerError as error:  # raised when its turn comes, if it does
            return error

    def start(begin: int, end: int) -> _Ahead:
        return _Ahead(begin, end, tasks.start(outcome(begin, end - begin), f"at {begin}"))

    try:
        while at < high:
            following = ahead[-1].high if ahead else at
            while len(ahead) < _AHEAD and following < high:
                ahead.append(start(following, min(following + count, high)))
                following = ahead[-1].high
            begin, end, task = ahead.popleft()
            if begin < at:  # the answer before went further, over offsets without messages
                task.cancel()
                if at < end:
                    ahead.appendleft(start(at, end))
                continue
            answer = await task
            if not isinstance(answer, Pulled):
                raise answer
            got, at = answer.next_offset - at, answer.next_offset
            parts.append(answer.body)
            size += len(answer.body)
            full = full + 1 if at >= end else 0
            if at < end:
                ahead.appendleft(start(at, end))
                if got < count:
                    count, enough = got, min(enough * 2, _MOST_FULL)
            elif full >= enough:
                count, full = min(count * 2, _MOST_COUNT), 0
            if size >= _BATCH_BYTES or at >= high:
                yield Pulled(b"".join(parts), at)
                parts, size = [], 0
    finally:
        await tasks.stop()
