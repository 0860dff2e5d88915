"""Routes: which queues they give, and how they are kept."""

import asyncio

import pytest

from rocketbroker.client.core.errors import BrokerNotFoundError, NameServerError, TopicRouteError
from rocketbroker.client.core.topic_route_table import TopicRouteTable, ordered_queues, topic_route
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.common.errors import RemoteProtocolError
from tests.support.fakes import FakeClock
from tests.support.scripted_server import route_of
from tests.support.waiting import turns, until


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
        (None, "it was not found out in time whether a broker is registered: look by mqadmin clusterList"),
    ],
)
async def test_a_topic_without_a_route_is_explained_by_the_brokers_there_are(text: str, *, brokers: bool | None):
    async def has_brokers() -> bool | None:
        return brokers

    table = TopicRouteTable(Fetch({}), has_brokers=has_brokers)
    with pytest.raises(TopicRouteError, match=f"No route info of this topic: New; {text}"):
        await table.publish_route("New")


class Registrations:
    """Answers no so many times that no broker is registered; then one is, with its topics."""

    def __init__(self, fetch: Fetch, absences: int) -> None:
        self.fetch, self.left, self.calls = fetch, absences, 0

    async def __call__(self) -> bool:
        self.calls += 1
        await asyncio.sleep(0)
        if self.left:
            self.left -= 1
            return False
        self.fetch.routes["T"] = route_of({"a": "h:1"})
        return True


async def test_a_route_is_looked_up_again_once_the_only_broker_is_back():
    fetch = Fetch({})
    brokers = Registrations(fetch, absences=3)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=0.01)
    assert (await table.publish_route("T", 60.0)).publish_queues
    assert (brokers.calls, fetch.calls.count("T")) == (4, 2)
    await table.stop()


async def test_senders_share_the_lookups_until_a_broker_is_registered():
    fetch = Fetch({})
    brokers = Registrations(fetch, absences=5)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=0.01)
    routes = await asyncio.gather(*(table.publish_route("T", 60.0) for _ in range(20)))
    assert all(route.publish_queues for route in routes)
    assert brokers.calls == 6
    await table.stop()


async def test_a_wait_for_a_broker_ends_with_the_limit_and_its_lookups_with_the_last_wait():
    fetch = Fetch({})
    brokers = Registrations(fetch, absences=1_000_000)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=600.0)
    with pytest.raises(TopicRouteError, match="no broker is registered"):
        await table.publish_route("T", 1.0)
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert brokers.calls == 1


async def test_senders_that_come_while_no_broker_is_registered_ask_no_more():
    fetch, clock = Fetch({}), FakeClock()
    brokers = Registrations(fetch, absences=1_000_000)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=600.0, clock=clock)
    waiting = asyncio.create_task(table.publish_route("T", 600.0))
    await until(lambda: table._waiting_senders == 1)
    clock.advance(600.0)
    later = [asyncio.create_task(table.publish_route("T", 600.0)) for _ in range(20)]
    await until(lambda: table._waiting_senders == 21)
    assert brokers.calls == 1
    for each in (waiting, *later):
        each.cancel()
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await table.stop()


async def test_pauses_between_lookups_of_brokers_grow_until_one_is_registered():
    clock = FakeClock()
    answers = [False, False, False, False, False, True, False]
    left = iter(answers)

    async def has_brokers() -> bool:
        return next(left)

    table = TopicRouteTable(Fetch({}), has_brokers=has_brokers, lookup_interval_s=1.0, clock=clock)
    pauses = []
    for _ in answers:
        await table._look_up_brokers(has_brokers)
        pauses.append(max(table._next_broker_lookup - clock.monotonic(), 0.0))
    assert pauses == [0.125, 0.25, 0.5, 1.0, 1.0, 0.0, 0.125]
    await table.stop()


async def test_a_name_server_that_is_lost_does_not_end_the_wait():
    fetch = Fetch({})
    answers: list[bool | None] = [False, None, None, False, True]
    brokers = iter(answers)

    async def has_brokers() -> bool | None:
        answer = next(brokers)
        if answer:
            fetch.routes["T"] = route_of({"a": "h:1"})
        return answer

    table = TopicRouteTable(fetch, has_brokers=has_brokers, lookup_interval_s=0.01)
    assert (await table.publish_route("T", 60.0)).publish_queues
    assert fetch.calls.count("T") == 2
    await table.stop()


async def test_a_limit_that_ends_before_the_answer_blames_no_cause():
    async def never() -> bool:
        await asyncio.Event().wait()
        raise AssertionError

    table = TopicRouteTable(Fetch({}), has_brokers=never)
    reason = await table._await_broker(asyncio.get_running_loop().time())
    assert reason is not None
    assert reason.startswith("it was not found out in time whether a broker is registered")
    await table.stop()


async def test_a_wrong_topic_fails_at_once_where_brokers_are():
    fetch = Fetch({})
    brokers = Registrations(fetch, absences=0)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=600.0)
    with pytest.raises(TopicRouteError, match="no broker creates topics by itself"):
        await table.publish_route("Wrong", 600.0)
    assert brokers.calls == 1


async def test_a_stop_ends_the_waits_for_a_broker():
    fetch = Fetch({})
    brokers = Registrations(fetch, absences=1_000_000)
    table = TopicRouteTable(fetch, has_brokers=brokers, lookup_interval_s=600.0)
    waiting = asyncio.create_task(table.publish_route("T", 600.0))
    await until(lambda: brokers.calls)
    await turns()
    await table.stop()
    with pytest.raises(NameServerError, match="the client is closed"):
        await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


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


# A clock that stands still: each lookup is planned for a whole interval later, however slow the machine is.


async def test_failed_sends_of_a_topic_share_one_lookup_an_interval():
    fetch, clock = Fetch({"T": route_of({"a": "h:1"}), "U": route_of({"a": "h:1"})}), FakeClock()
    table = TopicRouteTable(fetch, lookup_interval_s=60.0, clock=clock)
    await table.refresh_after_failure("T", 1.0)
    clock.advance(60.0)
    await table.refresh_after_failure("T", 1.0)
    assert fetch.calls == ["T", "T"]
    await asyncio.gather(*(table.refresh_after_failure("T", 1.0) for _ in range(20)))
    await table.refresh_after_failure("U", 1.0)
    assert fetch.calls == ["T", "T", "U"]
    await table.stop()


async def test_failed_sends_wait_for_the_lookup_that_is_planned():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch, lookup_interval_s=0.01, clock=FakeClock())
    await table.refresh_after_failure("T", 1.0)
    fetch.routes["T"] = route_of({"a": "h:2"})
    await asyncio.gather(*(table.refresh_after_failure("T", 10.0, 10.0) for _ in range(20)))
    assert table.addresses(masters_only=True) == {"h:2"}
    assert fetch.calls == ["T", "T"]
    await table.stop()


async def test_a_wait_for_a_planned_lookup_may_be_shorter_than_the_pause():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch, lookup_interval_s=600.0, clock=FakeClock())
    await table.refresh_after_failure("T", 1.0)
    await table.refresh_after_failure("T", 1.0, 0.01)
    assert fetch.calls == ["T"]
    await table.stop()


async def test_a_lookup_that_was_sent_before_a_failure_is_followed_by_another_one():
    gate, asked = asyncio.Event(), asyncio.Event()
    addresses: list[str] = []

    async def fetch(topic: str) -> TopicRouteData:
        addresses.append(f"h:{len(addresses) + 1}")
        answer = route_of({"a": addresses[-1]})
        asked.set()
        await gate.wait()
        return answer

    table = TopicRouteTable(fetch, lookup_interval_s=0.01, clock=FakeClock())
    sends = [asyncio.create_task(table.refresh_after_failure("T", 10.0))]
    await asked.wait()
    sends += [asyncio.create_task(table.refresh_after_failure("T", 10.0)) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*sends)
    assert table.addresses(masters_only=True) == {"h:1"}
    await until(lambda: table.addresses(masters_only=True) == {"h:2"})
    assert addresses == ["h:1", "h:2"]
    await table.stop()


async def test_nothing_starts_after_a_stop():
    fetch = Fetch({"T": route_of({"a": "h:1"})})
    table = TopicRouteTable(fetch, clock=FakeClock())
    await table.refresh_after_failure("T", 1.0)
    waiting = asyncio.create_task(table.refresh_after_failure("T", 600.0, 600.0))
    await asyncio.sleep(0)
    await table.stop()
    await waiting
    await table.refresh_after_failure("T", 1.0, 1.0)
    await table.refresh_topic("T")
    with pytest.raises(NameServerError, match="the client is closed"):
        await table.publish_route("U")
    assert fetch.calls == ["T"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


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
