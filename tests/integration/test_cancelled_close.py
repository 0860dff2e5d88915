"""Closes that are cancelled at each place where they wait: they reach their end, and leave nothing behind."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import (
    ClientInstance,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketbroker.client.core.client_instance import GroupMember
from tests.support.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[DevServer]:
    server = DevServer(0, 0)
    await server.start()
    async with Producer("PG", server.namesrv_addr) as producer:
        await producer.send(Message("Close", b"1"))
    yield server
    await server.stop()


async def handle(_message: ReceivedMessage) -> None: ...


async def orderly(client: ClientInstance) -> GroupMember:
    consumer = PushConsumer("CG", client=client, handler=handle, orderly=True, concurrency=2)
    await consumer.start()
    await consumer.subscribe("Close")
    return consumer


async def looped(client: ClientInstance) -> GroupMember:
    consumer = PushConsumer("CG", client=client)
    await consumer.start()
    await consumer.subscribe("Close")
    return consumer


async def lite(client: ClientInstance) -> GroupMember:
    consumer = LitePullConsumer("CG", client=client)
    await consumer.start()
    await consumer.subscribe("Close")
    return consumer


async def pulling(client: ClientInstance) -> GroupMember:
    consumer = PullConsumer("CG", client=client)
    await consumer.start()
    for queue in await consumer.fetch_subscribe_queues("Close"):
        await consumer.pull(queue, 0)
    return consumer


async def producing(client: ClientInstance) -> GroupMember:
    producer = TransactionProducer("CG", client=client, check=lambda _message: LocalTransactionState.UNKNOWN)
    await producer.start()
    await producer.send(Message("Close", b"2"))
    return producer


Start = Callable[[ClientInstance], object]


@pytest.mark.parametrize("start", [orderly, looped, lite, pulling, producing])
async def test_a_close_that_is_cancelled_anywhere_leaves_no_member_and_no_task(server: DevServer, start: Start):
    turns = 0
    async with ClientInstance(server.namesrv_addr) as client, asyncio.timeout(60):
        ended = False
        while not ended:
            before = asyncio.all_tasks()
            member = await start(client)  # type: ignore[misc]
            close = asyncio.create_task(member.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = not close.cancel()
            await asyncio.wait([close])
            await member.close()
            heartbeats = client.heartbeats
            assert (turns, heartbeats._consumers, heartbeats._producers) == (turns, {}, set())
            assert (turns, client._processor.consumers, client._processor.transaction_checks) == (turns, {}, {})
            await until(lambda before=before: not left_over(before))  # type: ignore[misc]
            # Closes wait for answers of the broker in many turns that are alike: look at the first ones closely. A
            # thread of the broker that does not run for a while makes them many more.
            turns += 1 if turns < 25 else 7 if turns < 400 else turns


def left_over(before: set[asyncio.Task[object]]) -> set[str]:
    """Return the tasks of clients that were not there before; the server in this process has its own."""
    own = ("push-consumer", "group-queues", "process-queue", "rebalance", "consume-message", "close ", "transaction-")
    return {task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith(own)}


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10, 20, 40])
async def test_a_loop_that_ends_during_a_close_leaves_no_member(server: DevServer, turns: int):
    async def main() -> None:
        consumer = PushConsumer("Gone", server.namesrv_addr, handler=handle)
        await consumer.start()
        await consumer.subscribe("Close")
        close = asyncio.create_task(consumer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        close.cancel()
        await asyncio.wait([close])
        if turns == 0:  # it had not begun
            await consumer.close()

    await asyncio.to_thread(asyncio.run, main())
    (broker,) = server.brokers.values()
    await until(lambda: not broker.controller.consumers.group_info("Gone"))


@pytest.mark.parametrize("turns", [1, 4, 16])
async def test_a_server_whose_stop_is_cancelled_stops(turns: int):
    server = DevServer(0, 0)
    await server.start()
    host, _, port = server.broker_addr.rpartition(":")
    store = server.store
    stop = asyncio.create_task(server.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))
    assert not store.exists()
