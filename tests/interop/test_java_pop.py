"""Official Java consumers that pop from our broker: push consumers whose mode mqadmin sets, and single requests.

Clients say when they were born by their own clock, and a broker drops pops that are late: no clock is stepped here.
"""

import asyncio
import itertools
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from tests.support.java import Java
from tests.support.java_lines import Got, check_content
from tests.support.java_scenario import Scenario
from tests.support.java_toolchain import require_java
from tests.support.our_servers import OurServer, OurServers, launch_serving, make_topic
from tests.support.queue_ends import queue_ends

pytestmark = pytest.mark.java

INVISIBLE_MS = 5000  # the shortest time that a push consumer takes
SHORT_MS = 1000  # that of a single request
SETTINGS = {"enablePropertyFilter": "true"}
LIMIT = 60  # seconds, with two cores and other work

T = TypeVar("T")
Held = list[tuple[str, int]]


class Cluster:
    """A name server, a broker and clients in a JVM."""

    def __init__(self, servers: OurServers, java: Java) -> None:
        self.servers = servers
        self.java = java
        self.namesrv: OurServer = servers.namesrv()
        self.broker = launch_serving(servers, self.namesrv, SETTINGS)
        self.clients = Scenario(java, self.namesrv.address, driver="Pop", broker=self.broker.address)

    def administrate(self, task: Callable[[AdminClient], Coroutine[None, None, T]]) -> T:
        async def run() -> T:
            async with AdminClient(self.namesrv.address) as admin:
                return await task(admin)

        return asyncio.run(run())

    def kill_and_restart(self) -> None:
        self.broker.kill()
        self.broker = launch_serving(self.servers, self.namesrv, SETTINGS, self.broker)


@dataclass
class Popping:
    """A topic and a group of one test."""

    cluster: Cluster
    topic: str
    consumers: list[str] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"CG_{self.topic}"

    @property
    def address(self) -> str:
        return self.cluster.broker.address

    def make(self, queues: int = 1, *, pops: bool = False, share: int = 0) -> None:
        """Make the topic and the group; a group that ``pops`` does so if its clients let the broker assign queues."""
        make_topic(self.address, self.cluster.namesrv.address, self.topic, queues)
        config = SubscriptionGroupConfig(self.group)
        self.cluster.administrate(lambda admin: admin.create_and_update_subscription_group_config(self.address, config))
        if pops:
            mode = MessageRequestMode.POP
            self.cluster.administrate(
                lambda admin: admin.set_message_request_mode(self.address, self.topic, self.group, mode, share)
            )

    def reset(self, offset: int) -> None:
        self.cluster.administrate(
            lambda admin: admin.reset_offset_by_queue_id(self.address, self.group, self.topic, 0, offset=offset)
        )

    def consumed(self) -> int:
        """Return the sum of the group's offsets."""
        stats = self.cluster.administrate(lambda admin: admin.examine_consume_stats(self.group, self.topic))
        return sum(each.consumer_offset for each in stats.offset_table.values())

    def retried(self) -> int:
        """Return the number of messages in the group's retry topic."""
        retry_topic = f"%RETRY%{self.group}_{self.topic}"
        return sum(queue_ends(self.cluster.namesrv.address, retry_topic, self.topic).values())

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.clients.process.wait_until(condition, LIMIT, what)

    def send(self, count: int, tags: str = "A", first: int = 0, keys: int = 0) -> None:
        self.cluster.clients.do("send", topic=self.topic, first=first, count=count, tags=tags, keys=keys)

    # -- push consumers

    def consume(self, name: str = "c", **options: object) -> None:
        """Start a push consumer that lets the broker assign its queues."""
        full = f"{self.topic}-{name}"
        self.cluster.clients.do("consume", name=full, group=self.group, topic=self.topic, pop=1, **options)
        self.consumers.append(name)

    def stop(self, name: str = "c") -> None:
        self.consumers.remove(name)
        self.cluster.clients.do("stop", name=f"{self.topic}-{name}")

    def got(self, name: str = "c") -> list[Got]:
        return self.cluster.clients.got(f"{self.topic}-{name}")

    def wait_got(self, condition: Callable[[list[Got]], bool], what: str, name: str = "c") -> list[Got]:
        return self.cluster.clients.wait_got(f"{self.topic}-{name}", condition, what)

    def held(self, name: str = "c") -> Held:
        """Return mode and number of each queue that a push consumer has."""
        clients = self.cluster.clients
        before = len(clients.lines("HELD"))
        clients.do("queues", name=f"{self.topic}-{name}", topic=self.topic)
        return sorted((row[1], int(row[2])) for row in clients.lines("HELD")[before:])

    def wait_held(self, wanted: Held, name: str = "c") -> None:
        self.wait_until(lambda: self.held(name) == wanted, f"give {name} {wanted}")

    def lite(self, name: str, group: str, count: int) -> list[int]:
        """Poll with a DefaultLitePullConsumer and commit; return the numbers of the messages in order."""
        full = f"{self.topic}-{name}"
        self.cluster.clients.do("lite", name=full, group=group, topic=self.topic, count=count, seconds=LIMIT)
        return sorted(numbers(self.got(name)))

    # -- single requests

    def pop(self, **options: object) -> list[Got]:
        """Pop once, or until something is found with ``attempts``."""
        clients, name = self.cluster.clients, f"{self.topic}-pop"
        before = len(clients.got(name))
        clients.do("pop", name=name, topic=self.topic, group=self.group, **options)
        return clients.got(name)[before:]

    def acknowledge(self, numbers: str, **options: object) -> list[str]:
        """Acknowledge messages that were popped; return the statuses."""
        return self._answers("ack", "ACKED", numbers=numbers, topic=self.topic, **options)

    def change(self, numbers: str, invisible: int) -> list[str]:
        return self._answers("change", "CHANGED", numbers=numbers, invisible=invisible)

    def forward(self, numbers: str, to: str) -> None:
        """Send messages that were popped to another topic, with all of their properties."""
        self.cluster.clients.do("forward", numbers=numbers, to=to)

    def notified(self, **options: object) -> str:
        """Return "true" if there is something to pop."""
        return self._answers("notification", "NOTIFIED", topic=self.topic, **options)[0]

    def _answers(self, verb: str, word: str, **options: object) -> list[str]:
        clients = self.cluster.clients
        before = len(clients.lines(word))
        clients.do(verb, group=self.group, **options)
        return [row[1] for row in clients.lines(word)[before:]]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_java()
    servers, java = OurServers(tmp_path_factory.mktemp("ours")), Java(tmp_path_factory.mktemp("java"))
    try:
        yield Cluster(servers, java)
        assert servers.errors() == []
    finally:
        java.close()
        servers.close()


@pytest.fixture
def popping(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Popping]:
    """A topic and a group for this test, on servers that the tests of this file share."""
    popping = Popping(
        shared_cluster, request.node.originalname.removeprefix("test_")[:40] + f"_{time.time_ns() % 10**6}"
    )
    yield popping
    for name in list(popping.consumers):
        popping.stop(name)


def numbers(messages: list[Got]) -> list[int]:
    return [each.n for each in messages]


def tried(messages: list[Got], n: int) -> list[int]:
    """Return the number of earlier deliveries of each delivery of a message."""
    return [each.reconsume_times for each in messages if each.n == n]


def joined(numbers: range) -> str:
    return ",".join(map(str, numbers))


# -- push consumers


def mqadmin(cluster: Cluster, whose: str, *arguments: str) -> None:
    if whose == "apache":
        done = cluster.java.mqadmin(*arguments, namesrv=cluster.namesrv.address)
    else:
        command = cluster.servers.command("app.mqadmin.cli", *arguments, "-n", cluster.namesrv.address)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=cluster.servers.environment()
        )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.proves("POP, by Apache's tests", "PopSubCheckIT")
@pytest.mark.proves("POP and the gRPC port", "the Java client pops and pulls again, as an administrator says")
@pytest.mark.parametrize("whose", ["ours", pytest.param("apache", marks=pytest.mark.soak)])
def test_mqadmin_lets_a_running_group_pop_and_pull_again(popping: Popping, whose: str):
    pulling = [("PULL", queue) for queue in range(4)]
    popping.make(queues=4)
    popping.consume()
    popping.wait_held(pulling)
    command = ("setConsumeMode", "-c", "DefaultCluster", "-t", popping.topic, "-g", popping.group, "-m")
    mqadmin(popping.cluster, whose, *command, "POP")
    popping.wait_held([("POP", -1)])
    popping.send(50, "A,B,C")
    popping.wait_got(lambda messages: len(messages) >= 50, "those to pop")
    mqadmin(popping.cluster, whose, *command, "PULL")
    popping.wait_held(pulling)
    popping.send(50, "A,B,C", first=50)
    messages = popping.wait_got(lambda messages: len(messages) >= 100, "those to pull")

    check_content(messages)
    assert {each.topic for each in messages} == {popping.topic}
    assert Counter(numbers(messages)) == Counter(range(100)), "each once"


def test_an_orderly_group_pulls_whatever_its_mode_is(popping: Popping):
    popping.make(queues=2, pops=True)
    popping.consume(listener="orderly")
    popping.send(60, "A,A,A,A,A,A,A,once", keys=2)
    messages = popping.wait_got(lambda messages: len(set(numbers(messages))) == 60, "all")

    assert popping.held() == [("PULL", 0), ("PULL", 1)]
    for queue in range(2):
        taken = list(dict.fromkeys(each.n for each in messages if each.queue_id == queue))
        assert taken == list(range(queue, 60, 2))
    assert tried(messages, 0) == [0]
    assert tried(messages, 7) == [0, 1]


@pytest.mark.proves("POP and the gRPC port", "popped messages that failed or stalled come again")
def test_failed_and_stalled_messages_come_again(popping: Popping):
    popping.make(queues=2, pops=True)
    popping.consume(invisible=INVISIBLE_MS)
    popping.send(8, "A,once,hang,A")
    messages = popping.wait_got(lambda messages: len(messages) >= 12, "four again")

    assert [tried(messages, n) for n in range(8)] == [[0], [0, 1], [0, 1], [0]] * 2
    assert {each.topic for each in messages} == {popping.topic}, "the retry topic stays hidden"
    check_content(messages, "A,once,hang,A")
    sent = {each.n: each.msg_id for each in popping.cluster.clients.sent()}
    assert all(each.msg_id == sent[each.n] for each in messages), "a message keeps its id"
    for n, least in ((1, 10_000), (2, INVISIBLE_MS)):  # what failed comes after 10 s, whatever the invisible time
        first, second = (each.received for each in messages if each.n == n)
        assert least - 100 <= second - first


@pytest.mark.proves("POP and the gRPC port", "popped messages become dead letters after the client's limit")
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_client_gives_up_a_message_after_its_limit(popping: Popping):
    """The official client acknowledges such a message when it comes once more; only the proxy makes dead letters."""
    popping.make(pops=True)
    popping.consume(invisible=INVISIBLE_MS, max=1)
    popping.send(1, "later")
    popping.wait_got(lambda messages: tried(messages, 0) == [0, 1], "the second attempt")
    popping.wait_until(lambda: popping.retried() == 2, "return it once more")
    popping.send(1, "A", first=1)
    popping.wait_got(lambda messages: 1 in numbers(messages), "the next one")
    popping.stop()

    assert tried(popping.got(), 0) == [0, 1]
    assert popping.pop(poll=2 * INVISIBLE_MS) == []
    assert popping.retried() == 2


@pytest.mark.proves("POP and the gRPC port", "clients share queues as the mode of the group says")
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_clients_share_queues_as_far_as_the_mode_says(popping: Popping):
    popping.make(queues=4, pops=True, share=1)
    names = ["a", "b", "c"]
    for name in names:
        popping.consume(name)
    # Of four queues, three members have 2, 1 and 1; each takes those of the next one as well.
    popping.wait_until(lambda: [len(popping.held(name)) for name in names] == [3, 2, 3], "hold 3, 2 and 3 queues")
    held = Counter(itertools.chain.from_iterable(popping.held(name) for name in names))
    assert held == dict.fromkeys([("POP", queue) for queue in range(4)], 2)

    popping.send(300, "A,B,C")
    popping.wait_until(lambda: sum(len(popping.got(name)) for name in names) >= 300, "have all among them")
    taken = list(itertools.chain.from_iterable(popping.got(name) for name in names))
    assert Counter(numbers(taken)) == Counter(range(300))
    check_content(taken)
    popping.stop("a")
    for name in ("b", "c"):
        popping.wait_held([("POP", -1)], name)


@pytest.mark.proves("POP and the gRPC port", "filters by tags and SQL92 choose popped messages")
@pytest.mark.parametrize("expression", [{"expression": "A || C"}, {"sql": "TAGS IN ('A', 'C')"}], ids=["tag", "sql"])
def test_a_filter_chooses_popped_messages(popping: Popping, expression: dict[str, str]):
    popping.make(queues=2, pops=True)
    popping.consume(**expression)
    popping.send(30, "A,B,C")
    popping.wait_got(lambda messages: len(messages) >= 20, "20 messages")
    popping.send(30, "A,B,C", first=30)
    messages = popping.wait_got(lambda messages: len(messages) >= 40, "20 more")

    assert sorted(numbers(messages)) == [n for n in range(60) if n % 3 != 1]
    popping.wait_until(lambda: popping.consumed() == 60, "pass the others")


@pytest.mark.proves("POP and the gRPC port", "a kill of the broker loses nothing that was popped")
def test_a_kill_of_the_broker_loses_nothing_that_was_popped(java: Java, our_servers: OurServers):
    popping = Popping(Cluster(our_servers, java), "Kill")
    popping.make(queues=2, pops=True)
    popping.consume(invisible=INVISIBLE_MS, batch=4)
    popping.send(40, "A,A,A,hang")
    popping.wait_got(lambda messages: len(set(numbers(messages))) == 40, "all")
    popping.cluster.kill_and_restart()
    hung = {n for n in range(40) if n % 4 == 3}
    popping.wait_got(lambda messages: hung <= {each.n for each in messages if each.reconsume_times}, "ten again")
    popping.send(10, "A", first=40)
    messages = popping.wait_got(lambda messages: len(set(numbers(messages))) == 50, "the new ones")

    # The client drops what it could not begin within the invisible time, so that a delivery may be missing.
    deliveries = {n: tried(messages, n) for n in range(50)}
    assert all(each == sorted(set(each)) for each in deliveries.values()), "each delivery is given once"
    # An acknowledgement that was under way when the broker died is lost.
    assert sum(len(deliveries[n]) > 1 for n in range(50) if n not in hung) <= 8, deliveries


def test_a_lite_pull_consumer_reads_beside_a_popping_one(popping: Popping):
    popping.make(queues=2, pops=True)
    popping.consume()
    popping.send(40, "A,B,C")
    assert popping.lite("other", f"{popping.group}_other", 40) == list(range(40))
    messages = popping.wait_got(lambda messages: len(messages) >= 40, "all")
    assert sorted(numbers(messages)) == list(range(40))
    popping.stop()
    # One of the same group begins where the pops ended, and what it commits is where they go on.
    popping.send(20, first=40)
    assert popping.lite("same", popping.group, 20) == list(range(40, 60))
    popping.consume("again")
    popping.send(20, first=60)
    messages = popping.wait_got(lambda messages: len(messages) >= 20, "the last", "again")
    assert sorted(numbers(messages)) == list(range(60, 80))


# -- single requests


@pytest.mark.proves("POP, by Apache's tests", "BatchAckIT")
def test_one_request_acknowledges_messages_of_several_topics(popping: Popping):
    popping.make()
    popping.send(10, "A,B,C")
    assert numbers(popping.pop(invisible=SHORT_MS)) == list(range(10))
    popping.wait_until(lambda: popping.retried() == 10, "return ten")
    popping.send(20, "A,B,C", first=10)
    messages = popping.pop(invisible=SHORT_MS)

    assert {n: tried(messages, n) for n in range(30)} == {n: [1 if n < 10 else 0] for n in range(30)}
    check_content(messages)
    assert popping.acknowledge(joined(range(30)), batch=1) == ["OK"]
    assert popping.pop(poll=4 * SHORT_MS) == []
    assert popping.cluster.clients.lines("POPPED")[-1][1] == "POLLING_NOT_FOUND"


@pytest.mark.proves("POP, by Apache's tests", "PopBigMessageIT")
@pytest.mark.parametrize("order", [0, 1], ids=["concurrently", "orderly"])
def test_a_large_message_returns_as_it_was(popping: Popping, order: int):
    popping.make()
    popping.send(1, first=99)
    (first,) = popping.pop(invisible=SHORT_MS, order=order)
    (second,) = popping.pop(poll=10 * SHORT_MS, attempts=3, order=order)

    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    check_content([first, second], "A")


@pytest.mark.proves("POP, by Apache's tests", "PopMessageAndForwardingIT")
def test_a_forwarded_message_is_acknowledged_where_it_was_forwarded_to(popping: Popping):
    other = Popping(popping.cluster, f"{popping.topic}_to")
    for each in (popping, other):
        each.make()
    popping.send(2)
    first = popping.pop()
    popping.forward("0,1", other.topic)
    second = other.pop(invisible=SHORT_MS)

    assert [(each.n, each.msg_id) for each in second] == [(each.n, each.msg_id) for each in first]
    assert {each.topic for each in second} == {other.topic}
    assert other.acknowledge("0") == ["OK"]
    assert [(each.n, each.reconsume_times) for each in other.pop(poll=10 * SHORT_MS, attempts=3)] == [(1, 1)]
    assert other.acknowledge("1") == ["OK"]
    assert other.pop(poll=2 * SHORT_MS) == []


@pytest.mark.proves("POP and the gRPC port", "a changed invisible time moves the return")
def test_a_changed_invisible_time_moves_the_return(popping: Popping):
    popping.make()
    popping.send(3)
    began = time.monotonic()
    assert numbers(popping.pop(invisible=6000)) == [0, 1, 2]
    assert popping.change("0", SHORT_MS) + popping.change("1", 9000) == ["OK", "OK"]
    returned: list[int] = []
    times = []
    for _ in range(3):
        returned += numbers(popping.pop(poll=10_000, attempts=3))
        times.append(time.monotonic() - began)

    assert returned == [0, 2, 1]
    assert times[0] < 6 <= times[1] + 0.1
    assert times[2] >= 9
    assert popping.acknowledge("0,1,2") == ["OK"] * 3


@pytest.mark.proves("POP, by Apache's tests", "NotificationIT")
def test_a_notification_says_whether_a_pop_would_find_something(popping: Popping):
    popping.make()
    assert popping.notified(poll=200) == "false"
    popping.send(1)
    assert popping.notified(poll=200) == "true"
    assert len(popping.pop(order=1, attempt="one")) == 1
    assert popping.notified(order=1, attempt="one", poll=200) == "true"
    assert popping.notified(order=1, attempt="two", poll=200) == "false"


# -- order


@pytest.mark.proves("POP, by Apache's tests", "PopOrderlyIT")
@pytest.mark.proves("POP, by Apache's tests", "BatchAckIT")
@pytest.mark.proves("POP and the gRPC port", "ordered pops wait for each other")
def test_ordered_pops_wait_for_each_other(popping: Popping):
    popping.make()
    popping.send(6)
    assert numbers(popping.pop(order=1, max=2)) == [0, 1]
    assert popping.pop(order=1, max=2, poll=300) == []
    popping.acknowledge("0")
    assert popping.pop(order=1, max=2, poll=300) == [], "one is left"
    popping.acknowledge("1")
    assert numbers(popping.pop(order=1, max=2, invisible=SHORT_MS)) == [2, 3]
    again = popping.pop(order=1, max=2, poll=10_000)
    assert [(each.n, each.reconsume_times) for each in again] == [(2, 1), (3, 1)], "after their time"
    popping.acknowledge("2,3")
    assert numbers(popping.pop(order=1)) == [4, 5]
    assert popping.acknowledge("4,5", batch=1) == ["OK"]
    assert popping.pop(order=1, poll=300) == []


@pytest.mark.proves("POP, by Apache's tests", "PopOrderlyIT")
def test_an_attempt_pops_its_ordered_messages_again(popping: Popping):
    popping.make()
    popping.send(1)
    seen: list[Got] = []
    began = time.monotonic()
    for attempt in ("one", "one", "two", "two"):
        seen += popping.pop(order=1, invisible=4000, attempt=attempt, poll=10_000)
        assert attempt == "one" or time.monotonic() - began >= 3.9
    assert tried(seen, 0) == [0, 0, 1, 1], "the same attempt is no new delivery"


@pytest.mark.proves("POP, by Apache's tests", "PopOrderlyIT")
@pytest.mark.proves("POP, by Apache's tests", "ChangeInvisibleTimeMidMsgOrderlyIT: the third message comes once")
def test_what_is_left_of_an_ordered_batch_comes_before_the_rest(popping: Popping):
    popping.make()
    popping.send(4)
    assert numbers(popping.pop(order=1, max=3, invisible=30_000)) == [0, 1, 2]
    popping.acknowledge("0,2")
    popping.change("1", SHORT_MS)
    following = popping.pop(order=1, max=3, poll=10_000)
    assert numbers(following) == [1, 3], "what is acknowledged does not come again"
    assert tried(following, 1) == [1]


# -- resets


@pytest.mark.proves("POP, by Apache's tests", "OffsetResetForPopIT")
@pytest.mark.proves("POP and the gRPC port", "a reset brings messages that are popped already")
def test_a_reset_brings_messages_that_are_popped_already(popping: Popping):
    popping.make()
    popping.send(10)
    assert numbers(popping.pop(queue=0)) == list(range(10))
    popping.reset(4)
    assert numbers(popping.pop(queue=0)) == list(range(4, 10))


def test_apaches_mqadmin_resets_a_popping_group(popping: Popping):
    popping.make(queues=2, pops=True)
    popping.consume()
    popping.send(20)
    popping.wait_got(lambda messages: len(messages) >= 20, "all")
    mqadmin(popping.cluster, "apache", "resetOffsetByTime", "-g", popping.group, "-t", popping.topic, "-s", "0")
    messages = popping.wait_got(lambda messages: len(messages) >= 40, "all again")

    assert Counter(numbers(messages)) == dict.fromkeys(range(20), 2)
    assert {each.reconsume_times for each in messages} == {0}


@pytest.mark.proves("POP, by Apache's tests", "OffsetResetForPopIT")
def test_old_handles_acknowledge_nothing_of_an_ordered_batch_after_a_reset(popping: Popping):
    popping.make()
    popping.send(10)
    assert len(popping.pop(queue=0, order=1)) == 10
    popping.reset(2)
    assert popping.consumed() == 2
    # Those below the reset keep their old handles.
    assert numbers(popping.pop(queue=0, order=1)) == list(range(2, 10))
    popping.acknowledge("0,1")
    assert popping.pop(queue=0, order=1, poll=300) == []
    popping.acknowledge(joined(range(2, 10)))
    popping.send(1, first=10)
    assert numbers(popping.pop(queue=0, order=1)) == [10]


@pytest.mark.proves("POP, by Apache's tests", "OffsetResetForPopIT")
@pytest.mark.parametrize("order", [0, 1], ids=["concurrently", "orderly"])
def test_a_reset_before_the_first_pop_says_where_it_begins(popping: Popping, order: int):
    popping.make()
    popping.send(10)
    popping.reset(4)
    assert numbers(popping.pop(queue=0, order=order)) == list(range(4, 10))
    popping.acknowledge(joined(range(4, 10)))
    popping.send(1, first=10)
    assert numbers(popping.pop(queue=0, order=order)) == [10]


@pytest.mark.proves("POP, by Apache's tests", "OffsetResetForPopIT")
def test_single_pops_without_acknowledgements_go_on_where_a_reset_says(popping: Popping):
    popping.make()
    popping.send(10)
    seen = [popping.pop(queue=0, max=1)[0].n for _ in range(8)]
    popping.reset(5)
    seen += [popping.pop(queue=0, max=1)[0].n for _ in range(5)]
    assert seen == [*range(8), *range(5, 10)]
    assert popping.pop(queue=0, max=1, poll=300) == []


@pytest.mark.proves("POP, by Apache's tests", "OffsetResetForPopIT")
@pytest.mark.parametrize("order", [0, 1], ids=["concurrently", "orderly"])
@pytest.mark.parametrize(("after", "resets"), [(2, (8,)), (2, (5, 8)), (8, (5,)), (8, (3, 1))])
def test_single_pops_go_on_where_a_reset_says(popping: Popping, order: int, after: int, resets: tuple[int, ...]):
    popping.make()
    popping.send(10)
    seen: list[int] = []
    while messages := popping.pop(queue=0, max=1, order=order, poll=300):
        seen += numbers(messages)
        popping.acknowledge(str(messages[0].n))
        if len(seen) == after:
            for offset in resets:
                popping.reset(offset)
    assert seen == [*range(after), *range(resets[-1], 10)]
