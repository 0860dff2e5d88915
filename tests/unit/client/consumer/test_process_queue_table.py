"""Queues taken, moved and given up, their locks at brokers, and where a new group starts."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack

import pytest

from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.consumer.process_queue_table import Locked, ProcessQueueTable, QueueLocks, StartOffset
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.requests import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere, LockBatchRequestBody, LockBatchResponseBody
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingTimeoutError
from tests.support.consumer_parts import QUEUE, MemoryOffsets, consumption, message
from tests.support.fakes import FakeClock
from tests.support.scripted_server import ScriptedServer, name_server, route_of
from tests.support.waiting import turns, until

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
ELSEWHERE = MessageQueue("T", "broker-b", 0)


def lock(_fields: dict[str, str], body: bytes) -> Command:
    return response(body=LockBatchResponseBody(LockBatchRequestBody.decode(body).mq_set[:1]).encode())


class Stage:
    def __init__(self) -> None:
        self.client: ClientInstance
        self.broker = ScriptedServer(
            {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: lambda _fields, _body: response()}
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stack.enter_async_context(stage.broker)
        routes = {"T": route_of({"broker-a": stage.broker.address, "broker-b": "127.0.0.1:1"})}
        names = await stack.enter_async_context(name_server(routes))
        stage.client = await stack.enter_async_context(ClientInstance(names.address))
        yield stage


async def test_each_broker_locks_its_queues(stage: Stage, caplog: pytest.LogCaptureFixture):
    result = await QueueLocks(stage.client, "CG").lock([FIRST, ELSEWHERE, SECOND])
    assert (result.locked, result.unknown) == ({FIRST}, {ELSEWHERE})
    (asked,) = stage.broker.of(RequestCode.LOCK_BATCH_MQ)
    body = LockBatchRequestBody.decode(asked.body)
    assert (body.consumer_group, body.client_id) == ("CG", stage.client.client_id)
    assert body.mq_set == [FIRST, SECOND]
    assert "locking 1 queues at broker-b failed" in caplog.text


async def test_each_broker_unlocks_its_queues(stage: Stage, caplog: pytest.LogCaptureFixture):
    await QueueLocks(stage.client, "CG").unlock([FIRST, ELSEWHERE])
    (asked,) = stage.broker.of(RequestCode.UNLOCK_BATCH_MQ)
    assert LockBatchRequestBody.decode(asked.body).mq_set == [FIRST]
    assert "unlocking 1 queues at broker-b failed" in caplog.text


ANSWERS = {RequestCode.GET_MIN_OFFSET: 10, RequestCode.GET_MAX_OFFSET: 90, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: 50}


async def invoke(queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
    return response(header={"offset": str(ANSWERS[RequestCode(command.code)])})


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 90),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 10),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 50),
    ],
)
async def test_a_new_group_starts_as_configured_and_others_where_they_stopped(where: ConsumeFromWhere, offset: int):
    start = StartOffset(where, 5, QueueOffsets(invoke))
    offsets = MemoryOffsets()
    assert await start.find(QUEUE, offsets) == offset
    assert offsets.persisted == {QUEUE: offset}, "where the next member continues"
    assert await start.find(QUEUE, MemoryOffsets({QUEUE: 0})) == 0
    retry = MessageQueue("%RETRY%CG", "broker-a", 0)
    assert await start.find(retry, MemoryOffsets()) == 10


async def test_a_topic_created_after_the_subscription_starts_at_its_first_message():
    start = StartOffset(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 0, QueueOffsets(invoke))
    start.begin_at_first("T")
    assert await start.find(QUEUE, MemoryOffsets()) == 10


class Locks(QueueLocks):
    def __init__(self) -> None:
        super().__init__(ClientInstance("127.0.0.1:1"), "CG")
        self.refused: set[MessageQueue] = set()
        self.silent: set[MessageQueue] = set()
        self.unlocked: list[MessageQueue] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def lock(self, queues: Iterable[MessageQueue]) -> Locked:
        wanted = set(queues)
        return Locked(wanted - self.refused - self.silent, wanted & self.silent)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        self.unlocked += queues
        await self.answers.wait()


class Owner:
    def __init__(self, *, locks: bool = False) -> None:
        self.offsets = MemoryOffsets({FIRST: 5, SECOND: 6})
        self.pulled: list[tuple[int, int]] = []
        self.locks = Locks()
        self.clock = FakeClock()
        self.silent = False
        self.answers = asyncio.Event()
        self.answers.set()
        start = StartOffset(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 0, QueueOffsets(self.invoke))
        self.table = ProcessQueueTable(
            self.offsets,
            start,
            HeldBytes(FlowControl()),
            self.clock,
            self.pull,
            self.locks if locks else None,
        )

    async def invoke(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        await self.answers.wait()
        if self.silent:
            raise RemotingTimeoutError("silent")
        return response(header={"offset": "0"})

    async def pull(self, held: ProcessQueue) -> None:
        self.pulled.append((held.queue.queue_id, held.next_offset))
        await asyncio.Event().wait()


async def test_queues_start_where_the_group_stopped_and_are_committed_when_given_up():
    stage = Owner()
    assert await stage.table.update("T", [FIRST, SECOND])
    await until(lambda: sorted(stage.pulled) == [(0, 5), (1, 6)])
    stage.offsets.update(FIRST, 9)
    held = stage.table.queues[FIRST]
    assert await stage.table.update("T", [SECOND])
    assert held.dropped
    assert (stage.offsets.persisted[FIRST], stage.offsets.offsets) == (9, {})
    assert await stage.table.update("Other", [])
    assert list(stage.table.queues) == [SECOND]
    await stage.table.stop()
    assert stage.table.queues == {}


async def test_a_queue_whose_offset_is_unknown_is_not_taken_yet(caplog: pytest.LogCaptureFixture):
    stage = Owner()
    stage.offsets.persisted.clear()
    stage.silent = True
    assert not await stage.table.update("T", [FIRST])
    assert "is not known yet" in caplog.text
    stage.silent = False
    assert await stage.table.update("T", [FIRST])
    await stage.table.stop()


async def test_an_update_under_way_takes_no_queue_after_the_stop():
    stage = Owner()
    stage.offsets.persisted.clear()
    stage.answers.clear()
    update = asyncio.create_task(stage.table.update("T", [FIRST]))
    await asyncio.sleep(0)
    await stage.table.stop_pulling()
    await stage.table.stop()
    stage.answers.set()
    await update
    assert (stage.table.queues, stage.pulled) == ({}, [])


async def test_a_reset_drops_what_is_held_and_moves_the_offset():
    stage = Owner()
    await stage.table.update("T", [FIRST])
    held = stage.table.queues[FIRST]
    held.put([message(5)])
    await stage.table.move({FIRST: 1, SECOND: 2})
    await until(lambda: (0, 1) in stage.pulled)
    assert held.dropped
    assert stage.offsets.persisted == {FIRST: 1, SECOND: 6}
    stage.table.seek(FIRST, 3)
    await until(lambda: (0, 3) in stage.pulled)
    assert stage.offsets.persisted[FIRST] == 1, "a seek commits nothing"
    await stage.table.stop()


async def test_a_lock_in_doubt_stays_in_doubt_over_a_reset_and_a_seek():
    stage = Owner(locks=True)
    await stage.table.update("T", [FIRST, SECOND])
    stage.table.doubt_locks()
    await stage.table.move({FIRST: 1})
    stage.table.seek(SECOND, 2)
    assert not any(map(stage.table.is_locked, stage.table.queues.values()))
    await stage.table.stop()


async def test_a_reset_of_an_orderly_queue_waits_for_its_message_under_way():
    stage = Owner(locks=True)
    await stage.table.update("T", [FIRST])
    held = stage.table.queues[FIRST]
    (under_way,) = held.put([message(5)])
    held.start(consumption(under_way, held), 1.0)
    reset = asyncio.create_task(stage.table.move({FIRST: 1}))
    await until(lambda: held.dropped)
    stage.table.doubt_locks()
    await stage.table.renew_locks()
    await turns()
    assert (0, 1) not in stage.pulled
    held.remove(under_way)
    stage.offsets.update(FIRST, 6)
    await reset
    await until(lambda: (0, 1) in stage.pulled)
    assert stage.offsets.persisted[FIRST] == 1
    assert stage.table.has_doubtful_locks
    await stage.table.stop()
    assert stage.locks.unlocked == [FIRST]


async def test_an_orderly_consumer_takes_locked_queues_only():
    stage = Owner(locks=True)
    await stage.table.start()
    stage.locks.refused = {SECOND}
    assert not await stage.table.update("T", [FIRST, SECOND])
    assert list(stage.table.queues) == [FIRST]
    stage.locks.refused = set()
    assert await stage.table.update("T", [FIRST, SECOND])
    await stage.table.stop()
    assert sorted(stage.locks.unlocked) == [FIRST, SECOND]


async def test_a_queue_is_unlocked_when_its_message_has_ended():
    stage = Owner(locks=True)
    await stage.table.update("T", [FIRST])
    held = stage.table.queues[FIRST]
    (under_way,) = held.put([message(5)])
    held.start(consumption(under_way, held), 1.0)
    await stage.table.update("T", [])
    assert not await stage.table.update("T", [FIRST]), "not while it is released"
    await turns()
    assert stage.locks.unlocked == []
    stage.offsets.update(FIRST, 6)
    held.remove(under_way)
    await until(lambda: stage.locks.unlocked == [FIRST])
    assert stage.offsets.persisted[FIRST] == 6
    assert await stage.table.update("T", [FIRST])
    await stage.table.stop()


async def test_a_lost_lock_drops_the_queue_and_a_silent_broker_lets_it_expire(caplog: pytest.LogCaptureFixture):
    stage = Owner(locks=True)
    await stage.table.renew_locks()
    await stage.table.update("T", [FIRST, SECOND])
    second = stage.table.queues[SECOND]
    stage.locks.refused, stage.locks.silent = {FIRST}, {SECOND}
    stage.clock.advance(29)
    await stage.table.renew_locks()
    assert list(stage.table.queues) == [SECOND]
    assert "another member of the group has the queue" in caplog.text
    assert stage.table.is_locked(second)
    stage.clock.advance(2)
    assert not stage.table.is_locked(second)
    await stage.table.stop_pulling()
    await stage.table.stop()


async def test_a_queue_whose_lock_was_in_doubt_is_taken_again_at_the_offset_of_the_group():
    stage = Owner(locks=True)
    await stage.table.update("T", [FIRST, SECOND])
    stage.table.doubt_locks()
    assert stage.table.has_doubtful_locks
    stage.locks.silent = {FIRST, SECOND}
    assert not await stage.table.renew_locks()
    assert len(stage.table.queues) == 2
    stage.locks.silent, stage.locks.refused = set(), {SECOND}
    assert await stage.table.renew_locks()
    assert stage.table.queues == {}
    await until(lambda: stage.locks.unlocked == [FIRST])
    await stage.table.update("T", [FIRST])
    assert stage.table.is_locked(stage.table.queues[FIRST])
    await stage.table.stop()


async def test_a_stop_that_is_cancelled_at_the_locks_drops_the_queues():
    stage = Owner(locks=True)
    await stage.table.update("T", [FIRST])
    held = stage.table.queues[FIRST]
    stage.locks.answers.clear()
    stop = asyncio.create_task(stage.table.stop())
    await until(lambda: stage.locks.unlocked == [FIRST])
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    assert held.dropped
    assert stage.table.queues == {}
