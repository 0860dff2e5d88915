"""Allocation of a topic's queues to the members of a group (RebalanceImpl, RebalanceService and the strategies).

Each member runs the same strategy on the same sorted lists, so that all agree without talking to each other. The
results are those of the Java client, which may be a member of the same group.
"""

import asyncio
import hashlib
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import AllocationError
from rocketbroker.client.core.options import CountFrom0, checked
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import GetConsumerListByGroupResponseBody, MessageModel
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.common.queue_allocation import allocate_averagely, allocate_averagely_by_circle, java_order

_VIRTUAL_NODES = 10


class AllocateMessageQueueStrategy(Protocol):
    """Strategy that allocates the queues of one topic."""

    @property
    def name(self) -> str:
        """Name of the strategy, the same for all members."""

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the queues of one member.

        Args:
            client_id: the member; one of ``client_ids``.
            queues: all queues of the topic, in order; at least one.
            client_ids: all members, in order.

        Raises:
            AllocationError: the strategy cannot place a queue or member.
        """


class AllocateMessageQueueAveragely:
    """Neighbouring queues for each member, the first members with one more."""

    name = "AVG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the member's slice of the queues."""
        return allocate_averagely(client_id, queues, client_ids)


class AllocateMessageQueueAveragelyByCircle:
    """Queues dealt out one by one."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return every n-th queue from the member's index on."""
        return allocate_averagely_by_circle(client_id, queues, client_ids)


class AllocateMessageQueueByConfig:
    """Fixed queues, whoever else is in the group.

    Args:
        queues: the queues of this member.
    """

    name = "CONFIG"

    @checked
    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self, _client_id: str, _queues: Sequence[MessageQueue], _client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the fixed queues."""
        return list(self._queues)


def md5_hash(key: str) -> int:
    """Return the first four bytes of the MD5 of a key as a number."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


class AllocateMessageQueueConsistentHash:
    """Members and queues on a hash ring: few queues move when a member joins or leaves.

    Args:
        virtual_nodes: points of each member on the ring (virtualNodeCnt).
        hash_function: hash of a key; MD5 by default.
    """

    name = "CONSISTENT_HASH"

    @checked
    def __init__(
        self, virtual_nodes: CountFrom0 = _VIRTUAL_NODES, hash_function: Callable[[str], int] = md5_hash
    ) -> None:
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the queues whose next point on the ring is the member's."""
        points = {
            self._hash(f"{member}-{number}"): member for member in client_ids for number in range(self._virtual_nodes)
        }
        ring = sorted(points)
        found: list[MessageQueue] = []
        for queue in queues if ring else ():
            key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            if points[ring[bisect_left(ring, self._hash(key)) % len(ring)]] == client_id:
                found.append(queue)
        return found


class AllocateMessageQueueByMachineRoom:
    """Queues of chosen machine rooms; broker names are ``room@broker``.

    Args:
        rooms: the rooms to consume from (consumeridcs).
    """

    name = "MACHINE_ROOM"

    @checked
    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return a slice of the rooms' queues, and one of the remainder for the first members."""
        chosen = [queue for queue in queues if self._is_in_rooms(queue.broker_name)]
        share, rest = divmod(len(chosen), len(client_ids))
        index = client_ids.index(client_id)
        taken = chosen[share * index : share * (index + 1)]
        return taken + chosen[share * len(client_ids) + index :][: index < rest]

    def _is_in_rooms(self, broker_name: str) -> bool:
        parts = broker_name.rstrip("@").split("@")  # Java's split drops empty parts at the end
        return len(parts) == 2 and parts[0] in self._rooms


class MachineRoomResolver(Protocol):
    """Knows the machine rooms of brokers and members; none may be empty."""

    def broker_room(self, queue: MessageQueue) -> str:
        """Return the room of a queue's broker (brokerDeployIn)."""

    def consumer_room(self, client_id: str) -> str:
        """Return the room of a member (consumerDeployIn)."""


class AllocateMachineRoomNearby:
    """Queues of a room for the members in it; queues of rooms without members for all.

    Args:
        strategy: allocates within each set of queues and members.
        resolver: knows the rooms.
    """

    @checked
    def __init__(self, strategy: AllocateMessageQueueStrategy, resolver: MachineRoomResolver) -> None:
        self._strategy = strategy
        self._resolver = resolver

    @property
    def name(self) -> str:
        """Name that holds the inner strategy's."""
        return f"MACHINE_ROOM_NEARBY-{self._strategy.name}"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the member's queues of its own room, then its part of the rooms without members.

        Raises:
            AllocationError: the resolver has no room for a queue or member.
        """
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_known_room(self._resolver.broker_room(queue), queue), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            members_of.setdefault(_known_room(self._resolver.consumer_room(member), member), []).append(member)
        own_room = self._resolver.consumer_room(client_id)
        allocated: list[MessageQueue] = []
        if near := queues_of.pop(own_room, None):
            allocated += self._strategy.allocate(client_id, near, members_of[own_room])
        for room in sorted(queues_of, key=java_order):
            if room not in members_of:
                allocated += self._strategy.allocate(client_id, queues_of[room], client_ids)
        return allocated


def _known_room(room: str, owner: object) -> str:
    if not room:
        raise AllocationError(f"the machine room of {owner} is empty; let the MachineRoomResolver return a name")
    return room


class RebalanceImpl:
    """Asks a broker for the members of the group, and lets the strategy choose the queues of this one.

    Args:
        client: connections and routes.
        group: the consumer group.
        strategy: the strategy; the same for all members.
        message_model: with BROADCASTING each member gets all queues.
    """

    def __init__(
        self, client: ClientInstance, group: str, strategy: AllocateMessageQueueStrategy, message_model: MessageModel
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._message_model = message_model

    async def allocate(self, topic: str) -> list[MessageQueue]:
        """Return this member's queues of a topic.

        Raises:
            TopicRouteError: the topic does not exist.
            AllocationError: the strategy cannot place a queue or member.
            RocketBrokerError: the name server or broker does not answer, or refuses.
        """
        queues = (await self._client.routes.route(topic)).subscribe_queues
        if self._message_model is MessageModel.BROADCASTING or not queues:
            return list(queues)
        client_id = self._client.client_id
        members = await self._members(queues)
        if client_id not in members:
            await self._client.heartbeats.send_to_all()
            members = await self._members(queues)
        if client_id not in members:
            return []
        ordered = sorted(queues, key=lambda queue: (java_order(queue.broker_name), queue.queue_id))
        return self._strategy.allocate(client_id, ordered, sorted(members, key=java_order))

    async def _members(self, queues: Sequence[MessageQueue]) -> list[str]:
        """Ask the brokers of the topic in turn, until one answers."""
        header = GetConsumerListByGroupRequestHeader(self._group)
        failure: RocketBrokerError | None = None
        for queue in {queue.broker_name: queue for queue in queues}.values():
            command = client_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = check_success(await self._client.invoke_at_broker(queue, command))
            except RocketBrokerError as error:
                failure = error
            else:
                return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
        assert failure is not None
        raise failure


# Seconds before an incomplete rebalance is repeated: at first, and at most.
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0


class RebalanceService:
    """Runs a rebalance when woken, at least every ``interval_s`` seconds, and soon again while it is incomplete.

    Args:
        rebalance: rebalances all topics; returns false if something was not available yet.
        interval_s: seconds between rebalances (rebalanceInterval).
    """

    def __init__(self, rebalance: Callable[[], Awaitable[bool]], interval_s: float) -> None:
        self._rebalance = rebalance
        self._interval_s = interval_s
        self._pause_s = _FIRST_PAUSE_S
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._tasks = TaskOwner("rebalance-service")

    async def start(self) -> None:
        """Start rebalancing."""
        self._tasks.whenever(self._run, _LAST_PAUSE_S, "rebalance")

    async def stop(self) -> None:
        """Stop rebalancing."""
        await self._tasks.stop()

    def wakeup(self) -> None:
        """Rebalance soon."""
        self._pause_s = _FIRST_PAUSE_S
        self._wanted.set()

    async def now(self) -> None:
        """Rebalance once, and again soon if it was incomplete."""
        async with self._lock:
            complete = await self._rebalance()
        if not complete:
            self.wakeup()

    async def _run(self) -> float:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._wanted.wait()
        except TimeoutError:
            pass
        self._wanted.clear()
        complete = False
        try:
            async with self._lock:
                complete = await self._rebalance()
        finally:
            if not complete:
                self._wanted.set()
        pause_s = 0.0 if complete else self._pause_s
        self._pause_s = _FIRST_PAUSE_S if complete else min(2 * self._pause_s, _LAST_PAUSE_S)
        return pause_s
