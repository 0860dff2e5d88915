"""Offsets of running and stopped official Java consumers, moved by Apache's admin client: what is delivered changes."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.interop.test_java_groups import produce
from tests.support.java import Java
from tests.support.java_group_admin import GroupAdmin
from tests.support.java_lines import Got, check_content, got, last_queues
from tests.support.java_process import JavaProcess
from tests.support.our_servers import Cluster, OurServers, wait_serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

NUMBER = 200
QUEUES = range(4)
PER_QUEUE = NUMBER // len(QUEUES)


@pytest.fixture
def admin(java: Java, cluster: Cluster, tmp_path: Path) -> GroupAdmin:
    return GroupAdmin(java, cluster.address, tmp_path)


def consume(java: Java, cluster: Cluster, topic: str, group: str, *options: str, client: str = "5.5.0") -> JavaProcess:
    given = (f"namesrv={cluster.address}", f"topic={topic}", f"group={group}", "persist=200", *options)
    return java.start("Push", *given, client=client)


def committed(cluster: Cluster, topic: str, group: str) -> dict[int, int]:
    """The offset of a group by queue."""

    async def ask() -> dict[int, int]:
        async with AdminClient(cluster.address) as admin:
            stats = await admin.examine_consume_stats(group, topic)
            return {queue.queue_id: offsets.consumer_offset for queue, offsets in stats.offset_table.items()}

    return asyncio.run(ask())


def wait_committed(cluster: Cluster, topic: str, group: str, offset: int) -> None:
    """Till the group has that offset in each queue."""
    everywhere = dict.fromkeys(QUEUES, offset)
    wait_until(lambda: committed(cluster, topic, group) == everywhere, f"{group} is at {offset} in each queue")


def places(messages: list[Got]) -> list[tuple[int, int]]:
    return sorted((each.queue_id, each.queue_offset) for each in messages)


def taken(consumer: JavaProcess, count: int, beyond: int = 0) -> list[Got]:
    """The messages after the first ``count``, once there are ``beyond`` of them."""
    wait_until(lambda: len(got(consumer.text())) >= count + beyond, f"{beyond} messages more have come")
    return got(consumer.text())[count:]


@pytest.mark.proves("Consumers", "offsets reset by time and to an offset, forward and backward, online and offline")
@pytest.mark.proves("Consumers", "a reset of an unknown group, or to an impossible offset, changes nothing")
@pytest.mark.proves("Consumers", "offsets cloned, for a running group as well")
@pytest.mark.proves("Consumers", "clients report their offsets (GET_CONSUMER_STATUS, relayed)")
def test_running_consumers_are_reset_to_a_time_and_to_an_offset(
    java: Java, our_servers: OurServers, cluster: Cluster, admin: GroupAdmin
):
    cluster.make_topic("Back")
    produce(java, cluster, "Back", f"selector:{NUMBER}:1", "pauseMillis=3")
    consumers = {
        "CG_Back5": consume(java, cluster, "Back", "CG_Back5"),
        "CG_Back4": consume(java, cluster, "Back", "CG_Back4", client="4.9.8"),
    }
    admin.ready()
    first = {group: taken(consumer, 0, NUMBER) for group, consumer in consumers.items()}
    time_ms = sorted(each.stored for each in first["CG_Back5"])[NUMBER // 2]
    later = [each for each in first["CG_Back5"] if each.stored >= time_ms]
    starts = {queue: min(offset for q, offset in places(later) if q == queue) for queue in QUEUES}

    for group in consumers:
        assert admin.call("time", group, "Back", time_ms) == {"-": starts}
    for group, consumer in consumers.items():
        again = taken(consumer, NUMBER, len(later))
        assert places(again) == places(later), f"{group}: what was stored from that time on, to the millisecond"
        check_content(again)
        wait_committed(cluster, "Back", group, PER_QUEUE)

    # One queue to an offset, while one that the queue does not have is refused and changes nothing.
    queue = ("queue", "CG_Back5", "Back", cluster.broker.address, 2)
    why = admin.refused(*queue, PER_QUEUE + 1)
    assert f"Target offset {PER_QUEUE + 1} not in consume queue range [0-{PER_QUEUE}]" in why
    assert committed(cluster, "Back", "CG_Back5") == dict.fromkeys(QUEUES, PER_QUEUE)
    admin.call(*queue, 40)
    known = NUMBER + len(later)
    assert places(taken(consumers["CG_Back5"], known, 10)) == [(2, offset) for offset in range(40, PER_QUEUE)]
    wait_committed(cluster, "Back", "CG_Back5", PER_QUEUE)
    (told,) = admin.call("status", "CG_Back5", "Back").values()
    assert told == dict.fromkeys(QUEUES, PER_QUEUE), "the client itself tells where it is"
    assert "Group CG_Nobody does not exist" in admin.refused("time", "CG_Nobody", "Back", 0)
    assert "No Any Consumer online" in admin.refused("status", "CG_Nobody", "Back")
    assert len(got(consumers["CG_Back4"].text())) == known, "another group goes on as it was"

    # A running group goes where one without consumers was set to.
    consumers["CG_Back5"].kill()
    admin.call("time", "CG_Back5", "Back", 0)
    admin.call("clone", "CG_Back5", "CG_Back4", "Back")
    assert places(taken(consumers["CG_Back4"], known, NUMBER)) == places(first["CG_Back5"])
    wait_committed(cluster, "Back", "CG_Back4", PER_QUEUE)
    assert "Topic Nothing does not exist" in admin.refused("clone", "CG_Back5", "CG_Back4", "Nothing")
    assert our_servers.errors() == []


@pytest.mark.proves("Consumers", "offsets reset by time and to an offset, forward and backward, online and offline")
@pytest.mark.soak
def test_groups_are_reset_forward_while_online_and_back_while_offline(
    java: Java, our_servers: OurServers, cluster: Cluster, admin: GroupAdmin
):
    cluster.make_topic("Forward")
    produce(java, cluster, "Forward", "selector:800:1")
    admin.ready()
    slow = consume(java, cluster, "Forward", "CG_Forward", "takeMillis=2000")
    taken(slow, 0, 1)
    assert admin.call("time", "CG_Forward", "Forward", -1) == {"-": dict.fromkeys(QUEUES, 200)}
    produce(java, cluster, "Forward", "selector:40:1", "first=800")
    wait_until(lambda: {each.n for each in got(slow.text())} >= set(range(800, 840)), "all new ones have come")
    assert len({each.n for each in got(slow.text())}) < 440, "most of what waited has not come"
    wait_committed(cluster, "Forward", "CG_Forward", 210)
    slow.kill()

    # It is on disk when it is acknowledged.
    admin.call("time", "CG_Forward", "Forward", 0)
    cluster.broker.kill()
    again = Cluster(cluster.namesrv, our_servers.broker(cluster.address, cluster.broker.store))
    assert committed(again, "Forward", "CG_Forward") == dict.fromkeys(QUEUES, 0)
    fast = consume(java, again, "Forward", "CG_Forward")
    messages = taken(fast, 0, 840)
    assert sorted(each.n for each in messages) == list(range(840))
    check_content(messages)
    wait_committed(again, "Forward", "CG_Forward", 210)


@pytest.mark.proves("Consumers", "a reset of consumers that broadcast, and of those that pull")
@pytest.mark.soak
def test_broadcasting_and_pulling_consumers_are_reset_as_well(java: Java, our_servers: OurServers, cluster: Cluster):
    cluster.make_topic("Other")
    produce(java, cluster, "Other", f"selector:{NUMBER}:1", "pauseMillis=3")
    pulling = java.start(
        "LitePull", f"namesrv={cluster.address}", "topic=Other", "group=CG_Lite", f"count={NUMBER * 3 // 2}"
    )
    # Java's timer and its reset both read, change and write the file of local offsets, without a lock. A timer that
    # fires during the reset puts the old offsets back, so it must not fire then.
    options = ("model=BROADCASTING", "persist=600000")
    broadcasting = [consume(java, cluster, "Other", "CG_Broadcast", *options) for _ in range(2)]
    first = {consumer.log: taken(consumer, 0, NUMBER) for consumer in (pulling, *broadcasting)}
    time_ms = sorted(each.stored for each in first[pulling.log])[NUMBER // 2]
    later = [each for each in first[pulling.log] if each.stored >= time_ms]

    async def reset() -> None:
        async with AdminClient(cluster.address) as admin:
            for group in ("CG_Lite", "CG_Broadcast"):
                await admin.reset_offset_by_timestamp("Other", group, time_ms)

    asyncio.run(reset())
    for consumer in (pulling, *broadcasting):
        assert places(taken(consumer, NUMBER, len(later))) == places(later)
    pulling.wait_for("DONE")
    assert committed(cluster, "Other", "CG_Lite") == dict.fromkeys(QUEUES, PER_QUEUE)
    assert our_servers.errors() == []


@pytest.mark.proves("Consumers", "a reset outlives a kill of the broker, and what a frozen consumer commits")
def test_a_reset_survives_a_restart_while_its_consumer_is_frozen(java: Java, our_servers: OurServers, cluster: Cluster):
    cluster.make_topic("Frozen")
    produce(java, cluster, "Frozen", f"selector:{NUMBER}:1")
    consumer = consume(java, cluster, "Frozen", "CG_Frozen", "heartbeat=500")
    taken(consumer, 0, NUMBER)
    wait_committed(cluster, "Frozen", "CG_Frozen", PER_QUEUE)
    consumer.freeze()

    async def reset() -> None:
        async with AdminClient(cluster.address) as admin:
            await admin.reset_offset_by_timestamp("Frozen", "CG_Frozen", 0)

    asyncio.run(reset())
    cluster.broker.kill()
    port, store = cluster.broker.port, cluster.broker.store
    wait_serving(our_servers.launch_broker(cluster.address, store, {}, port), cluster.address)
    assert committed(cluster, "Frozen", "CG_Frozen") == dict.fromkeys(QUEUES, 0)
    consumer.thaw()
    # It commits where it was before it learns of the reset, and with a connection that has sent no heartbeat yet.
    again = taken(consumer, NUMBER, NUMBER)
    assert sorted(each.n for each in again) == list(range(NUMBER))
    check_content(again)
    wait_committed(cluster, "Frozen", "CG_Frozen", PER_QUEUE)


@pytest.mark.proves("Consumers", "a message that is not finished holds the offset of its queue")
def test_the_offset_waits_for_unfinished_messages(java: Java, our_servers: OurServers, cluster: Cluster):
    cluster.make_topic("Stuck", 1)
    produce(java, cluster, "Stuck", "sync:60:1")
    consumer = consume(java, cluster, "Stuck", "CG_Stuck", "stuck=20")
    others = [n for n in range(60) if n != 20]
    assert sorted(each.n for each in taken(consumer, 0, len(others))) == others
    wait_until(lambda: committed(cluster, "Stuck", "CG_Stuck") == {0: 20}, "all before it is committed")
    consumer.kill()
    again = consume(java, cluster, "Stuck", "CG_Stuck")
    messages = taken(again, 0, 40)
    assert sorted(each.n for each in messages) == list(range(20, 60)), "that one, and what came after it once more"
    wait_until(lambda: committed(cluster, "Stuck", "CG_Stuck") == {0: 60}, "all is committed")
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Consumers",
    "`CONSUME_FROM_FIRST_OFFSET`, `_LAST_OFFSET`, `_TIMESTAMP` for new groups; all of a young topic whatever the rule",
)
def test_new_groups_start_where_their_setting_says(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    # The first 640 messages need more than one file of this size, and all later ones fit into the second.
    broker = our_servers.broker(namesrv.address, mappedFileSizeCommitLog=196_608, fileReservedTime=1)
    cluster = Cluster(namesrv, broker)
    cluster.make_topic("Start")
    produce(java, cluster, "Start", "selector:640:1")
    # A group that is new to a topic whose first message is still in memory starts there, whatever it wants.
    young = consume(java, cluster, "Start", "CG_Young", "from=LAST_OFFSET")
    assert sorted(each.n for each in taken(young, 0, 640)) == list(range(640))
    young.kill()
    without_first_messages(cluster, "Start")
    produce(java, cluster, "Start", "selector:80:1", "first=640", "pauseMillis=40")

    first = consume(java, cluster, "Start", "CG_First", "from=FIRST_OFFSET")
    wait_until(lambda: {*range(640, 720)} <= {each.n for each in got(first.text())}, "all that is there has come")
    stored = {each.n: each.stored for each in got(first.text())}
    time_ms = stored[680] // 1000 * 1000
    text = time.strftime("%Y%m%d%H%M%S", time.localtime(time_ms // 1000))
    last = consume(java, cluster, "Start", "CG_Last", "from=LAST_OFFSET")
    timed = consume(java, cluster, "Start", "CG_Time", "from=TIMESTAMP", f"timestamp={text}")
    wait_until(lambda: last_queues(last.text()) == [*QUEUES], "the one that starts at the end has its queues")
    produce(java, cluster, "Start", "selector:40:1", "first=720")

    new = list(range(720, 760))
    assert sorted(each.n for each in taken(last, 0, 40)) == new
    wanted = sorted(n for n, at in stored.items() if at >= time_ms)
    assert wanted == list(range(wanted[0], 720))
    assert 640 < wanted[0] <= 680, "the time lies amid the messages"
    assert sorted(each.n for each in taken(timed, 0, len(wanted) + 40)) == wanted + new
    assert sorted(each.n for each in taken(first, len(stored), 40)) == new
    assert our_servers.errors() == []


def without_first_messages(cluster: Cluster, topic: str) -> None:
    """Remove the first file of the log, so that no queue begins at 0."""

    first = min((cluster.broker.store / "commitlog").iterdir())
    os.utime(first, (time.time() - 7_200,) * 2)

    async def remove() -> None:
        async with AdminClient(cluster.address) as admin:
            await admin.delete_expired_commit_log(cluster.broker.address)

    def begins_later() -> bool:
        return all(first for first, _ in ends(cluster, topic).values())

    asyncio.run(remove())
    wait_until(begins_later, "the first file is removed")


def ends(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    """The first offset of each queue and the one behind its last."""

    async def ask() -> dict[int, tuple[int, int]]:
        async with AdminClient(cluster.address) as admin:
            table = (await admin.examine_topic_stats(topic)).offset_table
            return {queue.queue_id: (each.min_offset, each.max_offset) for queue, each in table.items()}

    return asyncio.run(ask())
