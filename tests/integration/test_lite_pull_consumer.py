"""Lite pull consumers with our own broker: shares, given queues, positions, commits."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import AdminClient, ClientStateError, LitePullConsumer, Message, Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.waiting import until

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


@pytest.fixture
async def server() -> AsyncIterator[DevServer]:
    server = DevServer(0, 0)
    await server.start()
    async with AdminClient(server.namesrv_addr) as admin:
        await admin.create_and_update_topic_config(server.broker_addr, TopicConfig("T", 2, 2))
    yield server
    await server.stop()


async def send(server: DevServer, numbers: range, queue: MessageQueue = FIRST) -> None:
    async with Producer("PG", server.namesrv_addr) as producer:
        for number in numbers:
            await producer.send(Message("T", b"%d" % number, tags="even" if number % 2 == 0 else "odd"), queue)


async def polled(consumer: LitePullConsumer, number: int) -> list[int]:
    found: list[int] = []
    while len(found) < number:
        messages = await consumer.poll(10.0)
        assert messages, f"{found} and no more"
        found += [int(message.body) for message in messages]
    return found


async def test_polls_give_the_messages_of_the_subscription_in_order(server: DevServer):
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T", "even")
        await send(server, range(100))
        assert await polled(consumer, 50) == list(range(0, 100, 2))
        assert await consumer.poll(0.05) == []


async def test_what_earlier_polls_returned_is_committed(server: DevServer):
    await send(server, range(10))
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        assert await polled(consumer, 10) == list(range(10))
    await send(server, range(10, 12))
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        assert await polled(consumer, 2) == [10, 11]
        assert await consumer.committed(FIRST) == 10


async def test_the_messages_of_a_failed_program_come_again(server: DevServer):
    async def fail() -> None:
        async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
            await consumer.subscribe("T")
            await consumer.poll(10.0, max_messages=2)
            raise ValueError

    await send(server, range(3))
    with pytest.raises(ValueError):  # noqa: PT011 - raised above
        await fail()
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        assert await polled(consumer, 3) == [0, 1, 2]


async def test_without_auto_commit_only_commit_commits(server: DevServer):
    await send(server, range(5))
    async with LitePullConsumer("CG", server.namesrv_addr, auto_commit=False) as consumer:
        await consumer.subscribe("T", "even")
        assert await polled(consumer, 3) == [0, 2, 4]
    async with LitePullConsumer("CG", server.namesrv_addr, auto_commit=False) as consumer:
        await consumer.subscribe("T", "even")
        assert await polled(consumer, 3) == [0, 2, 4]
        await consumer.commit()
        assert await consumer.committed(FIRST) == 5


async def test_members_share_the_queues(server: DevServer):
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(LitePullConsumer("CG", server.namesrv_addr)) for _ in range(2)]
        for consumer in consumers:
            await consumer.subscribe("T")
        await until(lambda: [len(consumer.queues) for consumer in consumers] == [1, 1])
        await send(server, range(5), FIRST)
        await send(server, range(5, 10), SECOND)
        assert sorted(await polled(consumers[0], 5) + await polled(consumers[1], 5)) == list(range(10))


async def test_given_queues_are_sought_paused_and_resumed(server: DevServer):
    await send(server, range(10), FIRST)
    await send(server, range(100, 105), SECOND)
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        assert await consumer.fetch_message_queues("T") == (FIRST, SECOND)
        await consumer.assign([FIRST])
        assert await polled(consumer, 10) == list(range(10))
        await consumer.seek(FIRST, 7)
        assert await polled(consumer, 3) == [7, 8, 9]
        await consumer.seek_to_begin(FIRST)
        consumer.pause([FIRST])
        assert await consumer.poll(0.05) == []
        consumer.resume([FIRST])
        assert await polled(consumer, 10) == list(range(10))
        await consumer.seek_to_end(FIRST)
        await consumer.assign([SECOND])
        assert await polled(consumer, 5) == list(range(100, 105))
        with pytest.raises(ClientStateError, match="does not have"):
            await consumer.seek(FIRST, 0)


async def test_a_seek_is_committed_without_a_poll(server: DevServer):
    await send(server, range(10))
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        await consumer.seek(FIRST, 7)
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        assert await polled(consumer, 3) == [7, 8, 9]


async def test_a_time_has_an_offset(server: DevServer):
    await send(server, range(3))
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.assign([FIRST])
        messages = await consumer.poll(10.0)
        assert await consumer.offset_for_timestamp(FIRST, 0) == 0
        assert await consumer.offset_for_timestamp(FIRST, messages[-1].store_timestamp + 1000) == 3


async def test_subscribe_and_assign_exclude_each_other(server: DevServer):
    async with LitePullConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("T")
        with pytest.raises(ClientStateError, match="use subscribe or assign, not both"):
            await consumer.assign([FIRST])
    async with LitePullConsumer("Other", server.namesrv_addr) as consumer:
        await consumer.assign([FIRST])
        with pytest.raises(ClientStateError, match="use subscribe or assign, not both"):
            await consumer.subscribe("T")


async def test_a_closed_consumer_cannot_be_polled(server: DevServer):
    consumer = LitePullConsumer("CG", server.namesrv_addr)
    await consumer.start()
    await consumer.close()
    with pytest.raises(ClientStateError, match="is not started, or is closed"):
        await consumer.poll()
