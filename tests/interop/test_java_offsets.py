"""Offsets of running and stopped official Java consumers, moved by Apache's admin client: what is delivered changes."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.client.admin_client import AdminClient
from tests.interop.test_java_groups import produce, until
from tests.support.java import Java
from tests.support.java_group_admin import GroupAdmin
from tests.support.java_lines import Got, check_content, got
from tests.support.java_process import JavaProcess
from tests.support.our_servers import Cluster, OurServers

pytestmark = pytest.mark.java

NUMBER = 200
QUEUES = range(4)
PER_QUEUE = NUMBER // len(QUEUES)
# What a client of 4.x waits before it goes to another offset is 10 s of this.
MOVES_S = 60.0


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
    until(lambda: committed(cluster, topic, group) == everywhere, MOVES_S, f"{group} is at {offset} in each queue")


def places(messages: list[Got]) -> list[tuple[int, int]]:
    return sorted((each.queue_id, each.queue_offset) for each in messages)


def taken(consumer: JavaProcess, count: int, beyond: int = 0) -> list[Got]:
    """The messages after the first ``count``, once there are ``beyond`` of them."""
    until(lambda: len(got(consumer.text())) >= count + beyond, MOVES_S, f"{beyond} messages more have come")
    return got(consumer.text())[count:]


def test_running_consumers_go_back_to_a_time_and_to_an_offset(
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


def test_groups_go_forward_while_they_run_and_back_while_they_do_not(
    java: Java, our_servers: OurServers, cluster: Cluster, admin: GroupAdmin
):
    cluster.make_topic("Forward")
    produce(java, cluster, "Forward", "selector:800:1")
    admin.ready()
    slow = consume(java, cluster, "Forward", "CG_Forward", "takeMillis=5000")
    taken(slow, 0, 1)
    assert admin.call("time", "CG_Forward", "Forward", -1) == {"-": dict.fromkeys(QUEUES, 200)}
    produce(java, cluster, "Forward", "selector:40:1", "first=800")
    until(lambda: {each.n for each in got(slow.text())} >= set(range(800, 840)), MOVES_S, "all new ones have come")
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
