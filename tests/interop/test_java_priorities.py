"""Priorities as the official Java client sends and pops them: in one order from our broker and from Apache's."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import NamedTuple

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from tests.support.java import Java
from tests.support.java_lines import Got
from tests.support.java_process import JavaServer
from tests.support.java_scenario import Scenario
from tests.support.java_toolchain import require_java
from tests.support.our_servers import OurServers, make_topic
from tests.support.queue_ends import queue_ends

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

QUEUES = 8
SHORT_MS = 1000
LIMIT = 60  # seconds, with two cores and other work
DEFAULTS = {
    "priorityOrderAsc": "true",
    "popFromRetryProbabilityForPriority": "0",
    "useSeparateRetryQueue": "false",
}


class Cluster(NamedTuple):
    """Addresses of a name server and a broker, and a client."""

    namesrv: str
    broker: str
    clients: Scenario

    @classmethod
    def of(cls, java: Java, namesrv: JavaServer, broker: JavaServer) -> "Cluster":
        clients = Scenario(java, namesrv.address, driver="Pop", broker=broker.address)
        return cls(namesrv.address, broker.address, clients)

    def administrate(self, task: Callable[[AdminClient], Coroutine[None, None, object]]) -> None:
        async def run() -> None:
            async with AdminClient(self.namesrv) as admin:
                await task(admin)

        asyncio.run(run())


class Priorities:
    """A topic with priorities and a group of one test."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.clients = cluster.clients
        self.topic = topic
        self.group = f"CG_{topic}"
        self.set(**DEFAULTS)
        self.make(QUEUES)
        self.factor(100)

    def make(self, queues: int) -> None:
        make_topic(self.cluster.broker, self.cluster.namesrv, self.topic, queues, message_type="PRIORITY")

    def factor(self, percent: int) -> None:
        """Create the group, or change how often it pops by priority."""
        config = SubscriptionGroupConfig(self.group, attributes={"+priority.factor": str(percent)})
        broker = self.cluster.broker
        self.cluster.administrate(lambda admin: admin.create_and_update_subscription_group_config(broker, config))

    def set(self, **settings: str) -> None:
        self.cluster.administrate(lambda admin: admin.update_broker_config(self.cluster.broker, settings))

    def send(self, count: int, first: int = 0, priorities: int = QUEUES) -> list[int]:
        """Send messages whose priorities are their numbers modulo ``priorities``; return their queues."""
        before = len(self.clients.sent())
        self.clients.do("send", topic=self.topic, first=first, count=count, priorities=priorities)
        return [each.queue_id for each in self.clients.sent()[before:]]

    def pop(self, most: int = 32, **options: object) -> list[Got]:
        before = len(self.clients.got("pop"))
        self.clients.do("pop", name="pop", topic=self.topic, group=self.group, max=most, poll=500, **options)
        return self.clients.got("pop")[before:]

    def wait_returned(self, number: int) -> None:
        """Wait until the retry topic has so many messages."""
        namesrv, retry_topic = self.cluster.namesrv, f"%RETRY%{self.group}_{self.topic}"
        self.clients.process.wait_until(
            lambda: sum(queue_ends(namesrv, retry_topic, self.topic).values()) >= number, LIMIT, "return them"
        )


@pytest.fixture(scope="module", params=["ours", pytest.param("apache", marks=pytest.mark.soak)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_java()
    servers, java = OurServers(tmp_path_factory.mktemp("ours")), Java(tmp_path_factory.mktemp("java"))
    try:
        namesrv: JavaServer
        if request.param == "ours":
            namesrv = servers.namesrv()
            yield Cluster.of(java, namesrv, servers.broker(namesrv.address))
        else:
            namesrv = java.namesrv()
            yield Cluster.of(java, namesrv, java.broker(namesrv.address))
        assert servers.errors() == []
    finally:
        java.close()
        servers.close()


@pytest.fixture
def priorities(cluster: Cluster) -> Priorities:
    return Priorities(cluster, f"Urgent_{time.time_ns() % 10**6}")


def queues(messages: list[Got]) -> list[int]:
    return [each.queue_id for each in messages]


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "a priority chooses the queue of a message, and pops begin at the highest",
)
def test_messages_come_by_priority(priorities: Priorities):
    at = priorities
    assert at.send(24, priorities=10) == [min(n % 10, 7) for n in range(24)]
    assert [queues(at.pop(1)) for _ in range(8)] == [[7]] * 6 + [[6]] * 2
    assert queues(at.pop()) == [5, 5, 4, 4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0]
    at.send(16)
    at.set(priorityOrderAsc="false")
    assert queues(at.pop(1)) == [0]
    assert queues(at.pop()) == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_a_group_without_the_factor_pops_from_any_queue(priorities: Priorities):
    at = priorities
    at.send(40 * QUEUES)
    assert [queues(at.pop(1)) for _ in range(5)] == [[7]] * 5
    at.factor(0)
    assert len({each.queue_id for _ in range(30) for each in at.pop(1)}) > 1


def test_retries_are_the_lowest_priority_or_the_highest(priorities: Priorities):
    at = priorities
    at.send(QUEUES)
    assert queues(at.pop(1, invisible=SHORT_MS)) == [7]
    at.wait_returned(1)
    messages = at.pop()
    assert [(each.n, each.reconsume_times) for each in messages] == [*((n, 0) for n in range(6, -1, -1)), (7, 1)]
    at.set(popFromRetryProbabilityForPriority="100")
    at.send(QUEUES, first=8)
    assert [each.n for each in at.pop(1, invisible=SHORT_MS)] == [15]
    at.wait_returned(2)
    assert [(each.n, each.reconsume_times) for each in at.pop()] == [(15, 1), *((n, 0) for n in range(14, 7, -1))]


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "messages that return keep their priority with `useSeparateRetryQueue`",
)
def test_retries_keep_their_priority_in_queues_of_their_own(priorities: Priorities):
    at = priorities
    at.set(useSeparateRetryQueue="true")
    at.send(QUEUES)
    assert len(at.pop(invisible=SHORT_MS)) == QUEUES
    at.wait_returned(QUEUES)
    at.make(2 * QUEUES)
    at.send(QUEUES, first=QUEUES, priorities=2 * QUEUES)
    messages = at.pop(invisible=SHORT_MS)
    # Retries come last, each with its own priority, as the first message of its queue.
    assert [(each.n, each.queue_id, each.queue_offset, each.reconsume_times) for each in messages] == [
        *((n, n, 0, 0) for n in range(15, 7, -1)),
        *((n, n, 0, 1) for n in range(7, -1, -1)),
    ]
    at.wait_returned(3 * QUEUES)
    at.set(popFromRetryProbabilityForPriority="100")
    assert [(each.n, each.queue_id, each.reconsume_times) for each in at.pop()] == [
        (n, n, 1 if n > 7 else 2) for n in range(15, -1, -1)
    ]
