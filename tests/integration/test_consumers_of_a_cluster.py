"""Consumers with several brokers, with SQL92 filters, and several on one client."""

import asyncio

from rocketbroker.client import (
    ClientInstance,
    LitePullConsumer,
    Message,
    MessageSelector,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketbroker.testing import RocketMQServer
from tests.support.waiting import until


async def test_an_sql_filter_selects_by_properties():
    async with (
        asyncio.timeout(90),
        RocketMQServer({"enablePropertyFilter": "true"}) as mq,
        Producer("PG", mq.namesrv_addr) as producer,
        PushConsumer("CG", mq.namesrv_addr) as consumer,
    ):
        await consumer.subscribe("Sql", MessageSelector.by_sql("a > 5"))
        for number in range(10):
            await producer.send(Message("Sql", b"%d" % number, properties={"a": str(number)}))
        found: list[int] = []
        async for message in consumer:
            found.append(int(message.body))
            if len(found) == 4:
                break
    assert sorted(found) == [6, 7, 8, 9]


async def test_members_have_queues_of_all_brokers():
    numbers: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        numbers.append(int(message.body))

    async with (
        asyncio.timeout(90),
        RocketMQServer(brokers=2) as mq,
        Producer("PG", mq.namesrv_addr) as producer,
        PushConsumer("CG", mq.namesrv_addr, handler=handle) as first,
        PushConsumer("CG", mq.namesrv_addr, handler=handle) as second,
    ):
        for number in range(16):
            await producer.send(Message("Two", b"%d" % number))
        for consumer in (first, second):
            await consumer.subscribe("Two")
        queues = await producer.fetch_publish_queues("Two")
        await until(
            lambda: (
                len([queue for each in (first, second) for queue in each.queues if queue.topic == "Two"]) == len(queues)
            )
        )
        for number in range(16, 32):
            await producer.send(Message("Two", b"%d" % number))
        await until(lambda: set(numbers) == set(range(32)))


async def test_consumers_of_several_groups_share_a_client():
    async with (
        asyncio.timeout(90),
        RocketMQServer() as mq,
        ClientInstance(mq.namesrv_addr) as client,
        Producer("PG", client=client) as producer,
        PushConsumer("Push", client=client) as push,
        LitePullConsumer("Pull", client=client) as pull,
    ):
        await push.subscribe("Shared")
        await pull.subscribe("Shared")
        await producer.send(Message("Shared", b"x"))
        async for message in push:
            assert message.body == b"x"
            break
        assert [message.body for message in await pull.poll(10.0)] == [b"x"]


async def test_a_broker_that_is_down_does_not_hold_up_the_queues_of_others():
    numbers: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        numbers.append(int(message.body))

    async with (
        asyncio.timeout(60),
        RocketMQServer(brokers=2) as mq,
        Producer("PG", mq.namesrv_addr, retry_times_when_send_failed=5) as producer,
    ):
        for number in range(16):
            await producer.send(Message("Down", b"%d" % number))
        async with PushConsumer("CG", mq.namesrv_addr, handler=handle) as first:
            await first.subscribe("Down")
            await until(lambda: set(numbers) == set(range(16)))
            mq.stop_broker()
            async with PushConsumer("CG", mq.namesrv_addr, handler=handle) as second:
                await second.subscribe("Down")
                await until(lambda: any(queue.topic == "Down" for queue in second.queues))
                for number in range(16, 24):
                    await producer.send(Message("Down", b"%d" % number))
                await until(lambda: set(numbers) == set(range(24)))
            mq.start_broker()
            await until(lambda: len({queue.broker_name for queue in first.queues if queue.topic == "Down"}) == 2)
