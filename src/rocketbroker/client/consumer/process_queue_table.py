"""Queues that a consumer has, and how it takes, locks and gives them up (RebalanceImpl)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import NamedTuple

from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import HeldBytes, ProcessQueue
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.requests import FailureLog, QueueOffsets, check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)


class Locked(NamedTuple):
    """Result of a lock request: queues that are locked now, and those whose broker did not answer."""

    locked: set[MessageQueue]
    unknown: set[MessageQueue]


class QueueLocks:
    """Locks queues at their brokers for one member of a group."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self._failures = FailureLog(log)

    async def lock(self, queues: Iterable[MessageQueue]) -> Locked:
        """Lock queues, or renew their locks."""
        result = Locked(set(), set())
        await asyncio.gather(*(self._lock_at_broker(part, result) for part in _by_broker(queues)))
        return result

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release queues; log a failure, after which the lock expires by itself."""
        await asyncio.gather(*map(self._unlock_at_broker, _by_broker(queues)))

    async def _lock_at_broker(self, queues: list[MessageQueue], result: Locked) -> None:
        body = LockBatchRequestBody(self._group, self._client.client_id, mq_set=queues).encode()
        try:
            command = client_request(RequestCode.LOCK_BATCH_MQ, body=body)
            answer = check_success(await self._client.invoke_at_broker(queues[0], command))
            result.locked.update(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
        except RocketBrokerError as error:
            self._failures.warning("locking %d queues at %s failed: %s", len(queues), queues[0].broker_name, error)
            result.unknown.update(queues)

    async def _unlock_at_broker(self, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(self._group, self._client.client_id, mq_set=queues).encode()
        try:
            command = client_request(RequestCode.UNLOCK_BATCH_MQ, body=body)
            check_success(await self._client.invoke_at_broker(queues[0], command))
        except RocketBrokerError as error:
            log.warning("unlocking %d queues at %s failed: %s", len(queues), queues[0].broker_name, error)


def _by_broker(queues: Iterable[MessageQueue]) -> Collection[list[MessageQueue]]:
    brokers: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        brokers.setdefault(queue.broker_name, []).append(queue)
    return brokers.values()


class StartOffset:
    """Start of each queue: the group's offset, for a new group as configured.

    Args:
        where: start of a new group.
        timestamp_ms: store time for CONSUME_FROM_TIMESTAMP.
        queue_offsets: asks the brokers.
    """

    def __init__(self, where: ConsumeFromWhere, timestamp_ms: int, queue_offsets: QueueOffsets) -> None:
        self._where = where
        self._timestamp_ms = timestamp_ms
        self._queue_offsets = queue_offsets
        self._from_first: set[str] = set()

    def begin_at_first(self, topic: str) -> None:
        """Start a topic at its first message: it was created after the subscription, so all its messages are new."""
        self._from_first.add(topic)

    async def find(self, queue: MessageQueue, store: OffsetStore) -> int:
        """Return the first offset to consume.

        The offset of a new group is persisted at once. Otherwise the next member to get the queue would start at its
        end, beyond messages that this one was given and has not consumed.

        Raises:
            RocketBrokerError: a broker does not answer, or the store cannot be read.
        """
        offset = await store.read(queue)
        if offset is None:
            offset = await self._new(queue)
            store.update(queue, offset)
            await store.persist([queue])
        return offset

    async def _new(self, queue: MessageQueue) -> int:
        from_first = self._where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or queue.topic in self._from_first
        if from_first or queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return await self._queue_offsets.min_offset(queue)
        if self._where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return await self._queue_offsets.search_offset(queue, self._timestamp_ms)
        return await self._queue_offsets.max_offset(queue)


#: Seconds after which a lock that was not renewed no longer counts; brokers keep it for 60.
LOCK_MAX_LIVE_S = 30.0
# Seconds between renewals of locks.
_LOCK_INTERVAL_S = 20.0
# Seconds that a queue to give up waits for its message under way (rocketmq.client.unlockDelayTimeMills).
_UNLOCK_DELAY_S = 20.0


class ProcessQueueTable:
    """Process queues of one consumer; each is pulled by a task.

    Args:
        offsets: store of the consumed offsets.
        start_offset: finds the first offset of a new queue.
        held_bytes: counter of the bytes in all queues.
        clock: source of time.
        pull: pulls a queue until it is dropped.
        locks: locks of an orderly consumer; None without.
    """

    def __init__(
        self,
        offsets: OffsetStore,
        start_offset: StartOffset,
        held_bytes: HeldBytes,
        clock: Clock,
        pull: Callable[[ProcessQueue], Coroutine[None, None, None]],
        locks: QueueLocks | None = None,
    ) -> None:
        self._offsets = offsets
        self._start_offset = start_offset
        self._held_bytes = held_bytes
        self._clock = clock
        self._pull = pull
        self._locks = locks
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._releasing: set[MessageQueue] = set()
        self._stopped = False
        self._lock = asyncio.Lock()
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("process-queue-table")

    async def start(self) -> None:
        """Start to renew locks."""
        if self._locks is not None:
            self._tasks.every(_LOCK_INTERVAL_S, self._renew_locks, "renew-locks")

    async def stop(self) -> None:
        """Stop pulling, persist the offsets, release all locks and drop the queues, each also if one before failed.

        The offsets come first: another member may start at the offset that it finds as soon as a queue is unlocked.
        """
        await stop_all(
            self._tasks.stop,
            lambda: self._offsets.persist([*self.queues, *self._releasing]),
            lambda: None if self._locks is None else self._locks.unlock([*self.queues, *self._releasing]),
            self._drop_all,
        )

    def _drop_all(self) -> None:
        for held in self.queues.values():
            held.drop()
        self.queues.clear()

    async def stop_pulling(self) -> None:
        """Stop all pulls and take no more queues; what is held remains."""
        self._stopped = True
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    async def update(self, topic: str, allocated: Collection[MessageQueue]) -> bool:
        """Take and give up queues of a topic; return false if a queue could not be taken yet."""
        async with self._lock:
            for queue in [queue for queue in self.queues if queue.topic == topic and queue not in allocated]:
                await self._release(self.queues[queue])
            new = [queue for queue in allocated if queue not in self.queues]
            free = [queue for queue in new if queue not in self._releasing]
            if self._locks is not None and free:
                free = list((await self._locks.lock(free)).locked)
            taken = await asyncio.gather(*map(self._take, free))
            return len(free) == len(new) and all(taken)

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set the group's offset of queues and continue there; what was held of them is dropped.

        An orderly queue continues when its message under way has ended.
        """
        async with self._lock:
            moved = {self.queues[queue]: at for queue, at in offsets.items() if queue in self.queues}
            for held in moved:
                self._stop_pull(held)
            if self._locks is not None:
                await asyncio.gather(*map(self._wait_idle, moved))
            for held in filter(self._has, moved):
                held.drop()
                self._offsets.update(held.queue, moved[held])
            await self._offsets.persist([held.queue for held in moved])
            for held in filter(self._has, moved):
                self._replace(held, moved[held])

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; what was held of it is dropped, and the group's offset stays."""
        self._replace(self.queues[queue], offset)

    def is_locked(self, held: ProcessQueue) -> bool:
        """Return true if an orderly consumer may consume a queue."""
        return self._locks is None or self._clock.monotonic() - held.last_lock < LOCK_MAX_LIVE_S

    def doubt_locks(self) -> None:
        """Stop consuming until the locks are renewed: a broker that restarts has forgotten them."""
        for held in self.queues.values():
            held.last_lock = -LOCK_MAX_LIVE_S

    async def renew_locks(self) -> bool:
        """Renew all locks; return false if a broker did not answer.

        A queue that another member has locked is dropped. One whose lock was in doubt is released, and taken again at
        the group's offset: another member may have consumed it in between.
        """
        if self._locks is None or not self.queues:
            return True
        locked, unknown = await self._locks.lock(list(self.queues))
        now = self._clock.monotonic()
        for queue, held in list(self.queues.items()):
            if queue in locked and self.is_locked(held):
                held.last_lock = now
            elif queue in locked:
                if not held.dropped:  # else `move` is about to replace it, with the lock still in doubt
                    await self._release(held)
            elif queue not in unknown:
                log.warning("the lock of %s is lost; another member of the group has the queue", queue)
                self._drop(held)
                self._offsets.remove(queue)
        return not unknown

    async def _renew_locks(self) -> None:
        await self.renew_locks()

    @property
    def has_doubtful_locks(self) -> bool:
        """True if a queue waits for the renewal of its lock."""
        return not all(map(self.is_locked, self.queues.values()))

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            offset = await self._start_offset.find(queue, self._offsets)
        except RocketBrokerError as error:
            self._failures.warning("the offset of %s is not known yet: %s", queue, error)
            return False
        if not self._stopped:
            self._add(queue, offset)
        return True

    def _has(self, held: ProcessQueue) -> bool:
        return self.queues.get(held.queue) is held

    def _replace(self, held: ProcessQueue, offset: int) -> None:
        self._stop_pull(held)
        held.drop()
        if not self._stopped:
            self._add(held.queue, offset).last_lock = held.last_lock

    def _add(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        held = self.queues[queue] = ProcessQueue(queue, offset, self._clock.monotonic(), self._held_bytes)
        self._pulls[queue] = self._tasks.start(self._pull(held), f"pull-{queue.broker_name}-{queue.queue_id}")
        return held

    def _drop(self, held: ProcessQueue) -> None:
        self._stop_pull(held)
        del self.queues[held.queue]
        held.drop()

    def _stop_pull(self, held: ProcessQueue) -> None:
        held.dropped = True
        pull = self._pulls.pop(held.queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()

    async def _release(self, held: ProcessQueue) -> None:
        if self._locks is None:
            self._drop(held)
            await self._offsets.persist([held.queue])
            self._offsets.remove(held.queue)
        else:
            self._stop_pull(held)
            del self.queues[held.queue]
            self._releasing.add(held.queue)
            self._tasks.start(self._unlock_when_idle(held, self._locks), "unlock")

    async def _unlock_when_idle(self, held: ProcessQueue, locks: QueueLocks) -> None:
        await self._wait_idle(held)
        held.drop()
        await self._offsets.persist([held.queue])
        self._offsets.remove(held.queue)
        await locks.unlock([held.queue])
        self._releasing.discard(held.queue)

    async def _wait_idle(self, held: ProcessQueue) -> None:
        """Let the message under way end, so that it is not consumed again at the same time."""
        try:
            async with asyncio.timeout(_UNLOCK_DELAY_S):
                await held.wait_idle()
        except TimeoutError:
            log.warning("a message of %s is under way for %g s; its queue is given up", held.queue, _UNLOCK_DELAY_S)
