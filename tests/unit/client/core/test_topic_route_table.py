"""Routes: which queues they give, and how they are kept."""

import asyncio

import pytest

from rocketbroker.client.core.errors import BrokerNotFoundError, NameServerError, TopicRouteError
from rocketbroker.client.core.topic_route_table import TopicRouteTable, ordered_queues, topic_route
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.common.errors import RemoteProtocolError
from tests.support.scripted_server import route_of
from tests.support.waiting import until


class Fetch:
    """Answers from a dict, counts the calls."""

    def __init__(self, routes: dict[str, TopicRouteData]) -> None:
        self.routes = routes
        self.calls: list[str] = []
        self.broken = False

    async def __call__(self, topic: str) -> TopicRouteData:
        self.calls.append(topic)
        await asyncio.sleep(0)
        if self.broken:
            raise NameServerError("no name server answers")
        if topic not in self.routes:
            raise TopicRouteError(f"no route of {topic}")
        return self.routes[topic]


def test_queues_come_sorted_by_broker():
    route = topic_route("T", route_of({"b": "h:2", "a": "h:1"}, queues=2))
    assert [str(queue.broker_name) + str(queue.queue_id) for queue in route.publish_queues] == ["a0", "a1", "b0", "b1"]
    assert route.subscribe_queues == route.publish_queues


@pytest.mark.parametrize(("perm", "written", "read"), [(6, 2, 2), (4, 0, 2), (2, 2, 0), (0, 0, 0), (7, 2, 2)])
def test_perm_decides_what_queues_are_for(perm: int, written: int, read: int):
    route = topic_route("T", route_of({"a": "h:1"}, queues=2, perm=perm))
    assert (len(route.publish_queues), len(route.subscribe_queues)) == (written, read)


def test_a_broker_without_a_master_is_only_read():
    data = TopicRouteData(None, [QueueData("a", 2, 2, 6)], [BrokerData("C", "a", {1: "h:1"})])
    route = topic_route("T", data)
    assert (len(route.publish_queues), len(route.subscribe_queues)) == (0, 2)


def test_an_ordered_topic_keeps_its_queues():
    route = topic_route("T", route_of({"a": "h:1"}, order="a:1;gone:2"))
    assert [(queue.broker_name, queue.queue_id) for queue in route.publish_queues] == [
        ("a", 0),
        ("gone", 0),
        ("gone", 1),
    ]


def test_a_broken_order_is_named():
    with pytest.raises(RemoteProtocolError, match="'a' instead of broker:number"):
        ordered_queues("T", "a")


async def test_a_route_is_fetched_once_for_many():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch)
    routes = await asyncio.gather(
        *(table.route("T") for _ in range(20)), *(table.publish_route("T") for _ in range(20))
    )
    assert fetch.calls == ["T"]
    assert all(route is routes[0] for route in routes)


async def test_an_unknown_topic_is_sent_by_the_template():
    fetch = Fetch({"TBW102": route_of({"a": "h:1"}, queues=8, perm=7)})
    table = TopicRouteTable(fetch)
    routes = await asyncio.gather(*(table.publish_route("New") for _ in range(20)))
    assert fetch.calls == ["New", "TBW102"]
    assert routes[0].publish_queues == tuple(MessageQueue("New", "a", index) for index in range(4))
    assert table.broker_address(MessageQueue("New", "a", 0)) == "h:1"
    with pytest.raises(TopicRouteError):
        await table.route("New")


async def test_a_topic_that_was_created_replaces_the_template():
    fetch = Fetch({"TBW102": route_of({"a": "h:1"}, queues=8, perm=7)})
    table = TopicRouteTable(fetch)
    await table.publish_route("New")
    await table.refresh()
    assert len((await table.publish_route("New")).publish_queues) == 4
    fetch.routes["New"] = route_of({"a": "h:1"}, queues=2)
    await table.refresh()
    assert len((await table.publish_route("New")).publish_queues) == 2


async def test_without_a_template_the_topic_must_exist():
    with pytest.raises(TopicRouteError, match="no broker creates topics"):
        await TopicRouteTable(Fetch({})).publish_route("New")


async def test_a_topic_that_cannot_be_written_is_rejected():
    table = TopicRouteTable(Fetch({"T": route_of({"a": "h:1"}, perm=4)}))
    with pytest.raises(TopicRouteError, match="no queue that can be written"):
        await table.publish_route("T")


async def test_a_failed_refresh_keeps_the_route():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch)
    before = await table.route("T")
    fetch.broken = True
    await table.refresh()
    assert await table.route("T") is before


async def test_routes_are_refreshed_by_themselves():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch, refresh_interval_s=0.01)
    await table.start()
    try:
        await table.route("T")
        fetch.routes["T"] = route_of({"a": "h:2"})
        await until(lambda: table.addresses(masters_only=True) == {"h:2"})
    finally:
        await table.stop()


async def test_another_broker_of_the_name_serves_when_asked_for():
    data = TopicRouteData(None, [QueueData("a", 2, 2, 6)], [BrokerData("C", "a", {1: "h:1", 2: "h:2"})])
    table = TopicRouteTable(Fetch({"T": data}))
    await table.route("T")
    queue = MessageQueue("T", "a", 0)
    with pytest.raises(BrokerNotFoundError, match="broker a"):
        table.broker_address(queue)
    assert table.broker_address(queue, exactly=False) == "h:1"
    assert table.broker_address(queue, 2) == "h:2"
    assert table.addresses(masters_only=True) == set()
    assert table.addresses(masters_only=False) == {"h:1", "h:2"}


@pytest.mark.parametrize(
    ("brokers", "text"),
    [
        (True, "no broker creates topics by itself: create it by mqadmin updateTopic"),
        (False, "no broker is registered at the name servers: start one, or check its namesrvAddr"),
    ],
)
async def test_a_topic_without_a_route_is_explained_by_the_brokers_there_are(text: str, *, brokers: bool):
    async def has_brokers() -> bool:
        return brokers

    table = TopicRouteTable(Fetch({}), has_brokers=has_brokers)
    with pytest.raises(TopicRouteError, match=f"No route info of this topic: New; {text}"):
        await table.publish_route("New")


async def test_a_broker_that_has_left_the_route_keeps_its_address():
    fetch = Fetch({"T": route_of({"a": "h:1", "b": "h:2"})})
    table = TopicRouteTable(fetch)
    await table.route("T")
    fetch.routes["T"] = route_of({"a": "h:1"})
    await table.refresh_topic("T")
    assert table.broker_address(MessageQueue("T", "b", 0)) == "h:2"
    assert {queue.broker_name for queue in (await table.route("T")).subscribe_queues} == {"a"}
    with pytest.raises(BrokerNotFoundError):
        table.broker_address(MessageQueue("T", "c", 0))


async def test_a_wait_for_a_refresh_may_be_shorter_than_the_refresh():
    gate = asyncio.Event()
    gate.set()
    routes = {"T": route_of({"a": "h:1"})}
    changes: list[None] = []

    async def fetch(topic: str) -> TopicRouteData:
        await gate.wait()
        return routes[topic]

    table = TopicRouteTable(fetch, on_change=lambda: changes.append(None))
    await table.route("T")
    gate.clear()
    routes["T"] = route_of({"a": "h:2"})
    await table.refresh_topic("T", 0.01)
    assert changes == []
    gate.set()
    await until(lambda: changes)
    assert table.broker_address(MessageQueue("T", "a", 0)) == "h:2"
    await table.stop()


async def test_a_stop_ends_those_who_wait_for_a_route():
    asked = asyncio.Event()

    async def never(_topic: str) -> TopicRouteData:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    table = TopicRouteTable(never)
    waiting = asyncio.create_task(table.route("T"))
    await asked.wait()
    await table.stop()
    with pytest.raises(NameServerError, match="the client is closed"):
        await waiting
