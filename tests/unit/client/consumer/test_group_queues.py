"""Rebalances that overlap with the end of a subscription or of the consumer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketbroker.client.consumer import group_queues
from rocketbroker.client.errors import TopicRouteError
from rocketbroker.client.lite_pull_consumer import LitePullConsumer
from rocketbroker.client.topic_route_table import TopicRoute
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from tests.support.consumer_parts import QUEUE, MemoryOffsets
from tests.support.scripted_server import ScriptedServer, name_server, route_of
from tests.support.waiting import until


class Stage:
    """A consumer whose rebalances stop in the allocation until ``gate`` is set."""

    def __init__(self, consumer: LitePullConsumer) -> None:
        self.consumer = consumer
        self.entered, self.gate = asyncio.Event(), asyncio.Event()
        consumer._queues._rebalance_impl.allocate = self.allocate  # type: ignore[method-assign]

    async def allocate(self, topic: str) -> list[MessageQueue]:
        self.entered.set()
        await self.gate.wait()
        return [QUEUE]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        ScriptedServer({}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        LitePullConsumer("CG", names.address, offset_store=MemoryOffsets({QUEUE: 0})) as consumer,
    ):
        yield Stage(consumer)


async def test_a_rebalance_under_way_takes_no_queue_of_a_topic_unsubscribed_from(stage: Stage):
    consumer = stage.consumer
    subscribing = asyncio.create_task(consumer.subscribe("T"))
    await stage.entered.wait()
    unsubscribing = asyncio.create_task(consumer.unsubscribe("T"))
    await until(lambda: not consumer._queues.subscriptions.by_topic)
    stage.gate.set()
    await asyncio.gather(subscribing, unsubscribing)
    assert list(consumer.queues) == []
    await consumer.subscribe("T")
    assert list(consumer.queues) == [QUEUE]


async def test_a_rebalance_under_way_takes_no_queue_of_a_closed_consumer(stage: Stage):
    subscribing = asyncio.create_task(stage.consumer.subscribe("T"))
    await stage.entered.wait()
    await stage.consumer.close()
    stage.gate.set()
    await subscribing
    assert stage.consumer.queues == ()


@pytest.mark.parametrize("found", [True, False])
async def test_a_topic_unsubscribed_from_while_it_is_looked_up_is_not_taken(stage: Stage, found: bool):
    consumer, routes = stage.consumer, stage.consumer._client.routes
    look_up, entered, gate = routes.route, asyncio.Event(), asyncio.Event()

    async def slow(topic: str, timeout_s: float | None = None) -> TopicRoute:
        entered.set()
        await gate.wait()
        if not found:
            raise TopicRouteError("gone")
        return await look_up(topic, timeout_s)

    routes.route = slow  # type: ignore[method-assign]
    stage.gate.set()
    subscribing = asyncio.create_task(consumer.subscribe("T"))
    await entered.wait()
    unsubscribing = asyncio.create_task(consumer.unsubscribe("T"))
    await until(lambda: not consumer._queues.subscriptions.by_topic)
    gate.set()
    await asyncio.gather(subscribing, unsubscribing)
    assert consumer.queues == ()


async def test_the_second_broker_of_a_new_topic_is_found_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_queues, "_NEW_TOPIC_PAUSES_S", (0.01,) * 100)
    second = MessageQueue("T", "broker-b", 0)
    routes: dict[str, TopicRouteData] = {}
    async with (
        ScriptedServer({}) as broker,
        name_server(routes) as names,
        LitePullConsumer(
            "CG",
            names.address,
            message_model=MessageModel.BROADCASTING,
            offset_store=MemoryOffsets({QUEUE: 0, second: 0}),
        ) as consumer,
    ):
        routes["T"] = route_of({"broker-a": broker.address}, queues=1)
        await consumer.subscribe("T")
        assert consumer.queues == (QUEUE,)
        routes["T"] = route_of({"broker-a": broker.address, "broker-b": broker.address}, queues=1)
        await until(lambda: consumer.queues == (QUEUE, second))
