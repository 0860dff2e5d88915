"""Groups of official Java push consumers against our broker: shares, take-over, broadcast, retry, delay, long polls."""

import itertools
import statistics

import pytest

from tests.support.java import Java
from tests.support.java_lines import check_content, got, last_queues, sent
from tests.support.java_process import JavaProcess
from tests.support.java_scenario import Scenario
from tests.support.our_servers import Cluster, OurServers
from tests.support.queue_ends import delayed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

# The client asks for its share by itself every 20 s; with this it does so only when the broker tells it to.
ONLY_WHEN_TOLD = {"rocketmq.client.rebalance.waitInterval": "300000"}
DELAYS_MS = {1: 1_000, 2: 5_000}  # of the first levels
# A group's retry topic comes to be with its first heartbeat. A client sees its route at its next poll, every 30 s, and
# takes its queue at its next rebalance, every 20 s: so that the delay is the broker's, both come each second here.
SEES_RETRY_TOPIC = "pollNameServer=1000"
OFTEN = {"rocketmq.client.rebalance.waitInterval": "1000"}


def push(
    java: Java, cluster: Cluster, topic: str, *options: str, properties: dict[str, str] | None = None
) -> JavaProcess:
    """Start a push consumer of group CG_<topic>."""
    given = (f"namesrv={cluster.address}", f"topic={topic}", f"group=CG_{topic}", *options)
    return java.start("Push", *given, properties=properties)


def produce(java: Java, cluster: Cluster, topic: str, plan: str, *options: str) -> str:
    done = java.run("Produce", f"namesrv={cluster.address}", f"topic={topic}", f"plan={plan}", *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def numbers(*consumers: JavaProcess) -> list[int]:
    return sorted(each.n for consumer in consumers for each in got(consumer.text()))


def wait_shared(first: JavaProcess, second: JavaProcess) -> None:
    """Till each has two of the four queues."""

    def shared() -> bool:
        shares = [last_queues(consumer.text()) or [] for consumer in (first, second)]
        return sorted(map(len, shares)) == [2, 2] and sorted(itertools.chain(*shares)) == [0, 1, 2, 3]

    wait_until(shared, "the queues are shared")


@pytest.mark.proves("Consumers", "clustering: shares, and take-over from a killed consumer at once")
def test_two_consumers_share_the_queues_and_one_takes_over_from_a_killed_one(java: Java, shared_cluster: Cluster):
    shared_cluster.make_topic("Share")
    first = push(java, shared_cluster, "Share", "persist=500", properties=ONLY_WHEN_TOLD)
    second = push(java, shared_cluster, "Share", "persist=500", properties=ONLY_WHEN_TOLD)
    wait_shared(first, second)
    producer = java.start(
        "Produce", f"namesrv={shared_cluster.address}", "topic=Share", "plan=selector:600:1", "pauseMillis=5"
    )
    wait_until(lambda: len(got(second.text())) > 50, "the second has taken some")
    assert set(numbers(first)).isdisjoint(numbers(second)), "before the take-over no message comes twice"
    second.kill()
    wait_until(lambda: last_queues(first.text()) == [0, 1, 2, 3], "the first has all queues")
    producer.wait_for("DONE")
    wait_until(lambda: set(numbers(first, second)) == set(range(600)), "all messages arrived at least once")

    taken = got(first.text())
    check_content(taken)
    assert len(taken) == len({each.n for each in taken}), "the first itself takes none twice"
    assert len(sent(producer.text())) == 600


@pytest.mark.proves("Consumers", "a client that is silent is dropped")
def test_the_broker_drops_a_frozen_client_and_another_takes_over(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    cluster = Cluster(namesrv, our_servers.broker(namesrv.address, channelExpiredTimeout=3000))
    cluster.make_topic("Frozen")
    first = push(java, cluster, "Frozen", "heartbeat=500", "persist=500", properties=ONLY_WHEN_TOLD)
    second = push(java, cluster, "Frozen", "heartbeat=500", "persist=500", properties=ONLY_WHEN_TOLD)
    wait_shared(first, second)
    second.freeze()
    # Silent for 3 s, looked for every 10 s.
    wait_until(lambda: last_queues(first.text()) == [0, 1, 2, 3], "the first has all queues")
    produce(java, cluster, "Frozen", "selector:200:1")
    wait_until(lambda: set(numbers(first)) == set(range(200)), "the first gets all")
    second.thaw()
    wait_shared(first, second)


@pytest.mark.proves("Consumers", "broadcasting")
def test_each_broadcasting_consumer_gets_every_message(java: Java, shared_cluster: Cluster):
    shared_cluster.make_topic("Broadcast")
    consumers = [push(java, shared_cluster, "Broadcast", "model=BROADCASTING") for _ in range(2)]
    wait_until(lambda: all(last_queues(each.text()) == [0, 1, 2, 3] for each in consumers), "each has all queues")
    produce(java, shared_cluster, "Broadcast", "sync:500:4")
    wait_until(lambda: all(len(got(each.text())) >= 500 for each in consumers), "each has all messages")
    consumers[1].kill()
    produce(java, shared_cluster, "Broadcast", "sync:500:4", "first=500")
    wait_until(lambda: len(got(consumers[0].text())) >= 1000, "the one that is left has all messages")

    assert numbers(consumers[0]) == list(range(1000))
    assert numbers(consumers[1]) == list(range(500))
    check_content(got(consumers[0].text()))


@pytest.mark.proves("Filters", "only messages with matching tags wake a held pull")
@pytest.mark.proves("Filters", "only messages that match its SQL92 filter wake a held pull")
@pytest.mark.proves("Filters", "retry topics with `filterSupportRetry`")
def test_a_held_pull_is_answered_by_the_arrival_of_a_message(java: Java, our_servers: OurServers):
    """By tags and by SQL92; a message that a filtered consumer failed at comes again by way of its retry topic."""
    namesrv = our_servers.namesrv()
    settings: dict[str, str | int] = {
        "enablePropertyFilter": "true",
        "filterSupportRetry": "true",
        "messageDelayLevel": "1s 1s 1s 1s",
    }
    cluster = Cluster(namesrv, our_servers.broker(namesrv.address, None, **settings))
    cluster.make_topic("Held", 1)
    clients = Scenario(java, cluster.address)
    clients.do("consume", name="tags", group="CG_Held", topic="Held", expression="A || B || once")
    clients.do("consume", name="sql", group="CG_Held_Sql", topic="Held", sql="TAGS IN ('A', 'B', 'once')")
    # Only C arrives between the wanted ones: it must neither wake the pulls for nothing nor make them miss the next.
    for n in range(12):
        clients.do("send", topic="Held", first=n, tags="A,C,B,C")
        for name in ("tags", "sql"):
            clients.wait_got(name, lambda messages: len(messages) == n // 2 + 1, f"message {n}")  # noqa: B023

    for name in ("tags", "sql"):
        messages = clients.got(name)
        assert [each.n for each in messages] == [0, 2, 4, 6, 8, 10]
        # Each was sent after the one before had come. By the check of the hold service it would come after 5 s.
        assert statistics.median(each.received - each.stored for each in messages[1:]) < 2_500

    clients.do("send", topic="Held", first=12, tags="once")
    for name in ("tags", "sql"):
        messages = clients.wait_got(name, lambda messages: len(messages) == 8, "the message that failed once")
        assert [(each.n, each.reconsume_times) for each in messages[6:]] == [(12, 0), (12, 1)]


@pytest.mark.proves(
    "Consumers",
    "flow control by the broker: pulls over a limit are rejected and tried again; consumers that take "
    "nothing cost bounded memory",
)
def test_pulls_over_the_limit_of_held_pulls_are_rejected_and_retried(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    cluster = Cluster(namesrv, our_servers.broker(namesrv.address, maxHeldPulls=1))
    cluster.make_topic("Busy", 4)
    clients = Scenario(java, cluster.address)
    clients.do("consume", name="c", group="CG_Busy", topic="Busy")
    log = java.home / "Scenario.log"
    wait_until(lambda: "maxHeldPulls" in log.read_text(errors="replace"), "a pull is rejected with the setting's name")
    clients.do("send", topic="Busy", count=40, tags="A,B,C")
    messages = clients.wait_got("c", lambda messages: len(messages) >= 40, "all messages")

    check_content(messages)
    assert sorted(each.n for each in messages) == list(range(40))
    assert {each.queue_id for each in messages} == set(range(4))
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Consumers",
    "a subscription by tags that changes at run time is served before a heartbeat reports it",
)
def test_a_subscription_changed_during_a_heartbeat_applies_before_the_next(java: Java, shared_cluster: Cluster):
    shared_cluster.make_topic("Changed", 1)
    consumer = push(java, shared_cluster, "Changed", "expression=A", "change=A || B", "heartbeat=600000")
    wait_until(lambda: last_queues(consumer.text()) == [0], "it has the queue")
    produce(java, shared_cluster, "Changed", "sync:1:1", "tags=A")
    consumer.wait_for("CHANGED")
    # Ends the pull that is held with the tags before; the next ones have new tags, which no heartbeat has brought yet.
    produce(java, shared_cluster, "Changed", "sync:1:1", "tags=A", "first=3")
    wait_until(lambda: numbers(consumer) == [0, 3], "it has the messages")
    produce(java, shared_cluster, "Changed", "sync:9:1", "tags=A,B,C", "first=4")
    wait_until(lambda: len(numbers(consumer)) == 8, "it has the messages of the new tags")

    assert numbers(consumer) == [0, 3, 4, 6, 7, 9, 10, 12]
    assert {each.tags for each in got(consumer.text())} == {"A", "B"}
    check_content(got(consumer.text()))


@pytest.mark.proves(
    "Retries and dead letters",
    "a message that failed comes again through `%RETRY%<group>`, with its first id",
)
def test_a_message_answered_with_reconsume_later_is_redelivered(java: Java, shared_cluster: Cluster):
    shared_cluster.make_topic("Later")
    soon = push(
        java, shared_cluster, "Later", "failures=2", "delayLevel=1", "stopAfter=60", SEES_RETRY_TOPIC, properties=OFTEN
    )
    wait_until(lambda: last_queues(soon.text()) == [0, 1, 2, 3], "it has the queues")
    told = produce(java, shared_cluster, "Later", "sync:20:1")
    soon.wait_for("DONE")

    messages = got(soon.text())
    check_content(messages)
    attempts: dict[int, list[int]] = {}
    for each in messages:
        attempts.setdefault(each.n, []).append(each.reconsume_times)
    assert attempts == {n: [0, 1, 2] for n in range(20)}
    # The client keeps the first id over all attempts.
    assert {(each.n, each.msg_id) for each in messages} == {(each.n, each.msg_id) for each in sent(told)}
    by_attempt = {(each.n, each.reconsume_times): each.received for each in messages}
    for (n, times), received in by_attempt.items():
        if times:
            assert received - by_attempt[n, times - 1] >= 1000, "level 1 is 1 s"


@pytest.mark.proves("Retries and dead letters", "after 10 s of real time")
def test_reconsume_later_redelivers_after_10_s_by_default(java: Java, cluster: Cluster):
    cluster.make_topic("Default")
    consumer = push(java, cluster, "Default", "failures=1", "stopAfter=8", SEES_RETRY_TOPIC, properties=OFTEN)
    wait_until(lambda: last_queues(consumer.text()) == [0, 1, 2, 3], "it has the queues")
    produce(java, cluster, "Default", "sync:4:1")
    consumer.wait_for("DONE")

    first, again = (
        {each.n: each.received for each in got(consumer.text()) if each.reconsume_times == times} for times in (0, 1)
    )
    assert sorted(first) == sorted(again) == [0, 1, 2, 3]
    for n in first:
        assert again[n] - first[n] >= 10_000
    assert delayed(cluster.address, "Default") == {3: 4}, "level 3, and not the next one"


@pytest.mark.proves("Delayed messages", "delay levels: not early, in real time")
def test_delayed_messages_arrive_on_time_and_never_early(java: Java, shared_cluster: Cluster):
    """Lateness is measured by a clock of the test's own in test_java_delays.py: a busy machine is late as well."""
    shared_cluster.make_topic("Delay")
    clients = Scenario(java, shared_cluster.address)
    clients.do("consume", name="c", group="CG_Delay", topic="Delay")
    for level in DELAYS_MS:
        clients.do("send", topic="Delay", first=20 * level, count=20, tags="A,B,C", level=level)
    messages = clients.wait_got("c", lambda messages: len(messages) >= 40, "all messages")

    check_content(messages)
    assert sorted(each.n for each in messages) == list(range(20, 60))
    assert all(each.received - each.born >= DELAYS_MS[each.n // 20] for each in messages)
