"""Subscriptions of a group's members, and the queues that they get by them."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from rocketbroker.client.consumer import group_queues
from rocketbroker.client.consumer.group_queues import Subscriptions
from rocketbroker.client.consumer.lite_pull_consumer import LitePullConsumer
from rocketbroker.client.consumer.rebalance import RebalanceImpl
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import SubscriptionError, TopicRouteError
from rocketbroker.client.core.pull_result import MessageSelector
from rocketbroker.client.core.topic_route_table import TopicRoute
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.common.clock import SystemClock
from tests.support.consumer_parts import QUEUE, MemoryOffsets
from tests.support.fakes import FakeClock
from tests.support.scripted_server import ScriptedServer, name_server, route_of
from tests.support.waiting import turns, until

TAGS = MessageSelector.by_tag("b || a")


def of(group: str = "CG", name_server: str = "a:1") -> Subscriptions:
    return Subscriptions((name_server,), group, SystemClock())


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(group_queues, "members_by_group", {})
    yield
    assert group_queues.members_by_group == {}


def test_a_subscription_has_its_tags_and_codes():
    own = of()
    own.add("T", TAGS)
    data = own.by_topic["T"]
    assert (data.sub_string, data.tags_set, data.code_set) == ("b || a", ["a", "b"], [97, 98])
    own.remove("T")
    assert own.by_topic == {}


def test_another_filter_is_rejected_while_the_other_runs():
    first, second = of(), of()
    first.join()
    second.join()
    first.add("T", TAGS)
    second.add("T", TAGS)
    second.add("U", TAGS)
    with pytest.raises(SubscriptionError, match=r"by TAG 'b \|\| a', not by SQL92 'x > 1'"):
        second.add("T", MessageSelector.by_sql("x > 1"))
    first.leave()
    second.add("T", MessageSelector.by_sql("x > 1"))
    with pytest.raises(SubscriptionError):
        first.join()
    second.leave()


def test_other_groups_and_clusters_may_differ():
    all_of_them = [of(), of("Other"), of(name_server="b:1")]
    for number, each in enumerate(all_of_them):
        each.join()
        each.add("T", MessageSelector.by_tag(str(number)))
    for each in all_of_them:
        each.leave()


def test_a_missing_topic_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    clock = FakeClock()
    first, second = (Subscriptions(("a:1",), "CG", clock) for _ in range(2))
    first.join()
    second.join()
    first.add("T", TAGS)
    first.add("Other", TAGS)
    # Consumers that subscribe alike do so one after the other.
    second.warn_of_missing_topics()
    second.add("Other", TAGS)
    assert caplog.records == []
    clock.advance(10)
    for _ in range(2):
        second.warn_of_missing_topics()
    first.warn_of_missing_topics()
    assert [record.args for record in caplog.records] == [("CG", "T")]
    first.leave()
    second.leave()


class Stage:
    """A consumer whose rebalances stop in the allocation until ``gate`` is set."""

    def __init__(self, consumer: LitePullConsumer, client: ClientInstance) -> None:
        self.consumer = consumer
        self.client = client
        self.entered, self.gate = asyncio.Event(), asyncio.Event()

    async def allocate(self, topic: str) -> list[MessageQueue]:
        self.entered.set()
        await self.gate.wait()
        return [QUEUE]


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with (
        ScriptedServer({}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        ClientInstance(names.address) as client,
        LitePullConsumer("CG", client=client, offset_store=MemoryOffsets({QUEUE: 0})) as consumer,
    ):
        stage = Stage(consumer, client)
        monkeypatch.setattr(RebalanceImpl, "allocate", lambda _rebalance, topic: stage.allocate(topic))
        yield stage


async def test_a_rebalance_under_way_takes_no_queue_of_a_topic_unsubscribed_from(stage: Stage):
    consumer = stage.consumer
    subscribing = asyncio.create_task(consumer.subscribe("T"))
    await stage.entered.wait()
    unsubscribing = asyncio.create_task(consumer.unsubscribe("T"))
    await turns(5)
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
    consumer, routes = stage.consumer, stage.client.routes
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
    await turns(5)
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
