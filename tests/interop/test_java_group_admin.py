"""Groups of official Java consumers that may not consume or do not agree, and clients that the broker asks."""

import asyncio
import re
from pathlib import Path

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.interop.test_java_groups import produce, push
from tests.support.java import Java
from tests.support.java_group_admin import GroupAdmin
from tests.support.java_lines import check_content, got
from tests.support.java_process import JavaProcess
from tests.support.our_servers import Cluster, OurServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture
def admin(java: Java, cluster: Cluster, tmp_path: Path) -> GroupAdmin:
    return GroupAdmin(java, cluster.address, tmp_path)


def wait_for(consumer: JavaProcess, count: int) -> None:
    wait_until(lambda: len(got(consumer.text())) >= count, f"{count} messages have come")


def conflict_and_figures(cluster: Cluster, group: str) -> tuple[str, dict[str, str]]:
    """Connections and consumption statistics of a group, as the broker answers them."""

    async def ask() -> tuple[str, dict[str, str]]:
        async with AdminClient(cluster.address) as client:
            _, conflict = await client.examine_consumers(group)
            figures = await client.fetch_broker_runtime_stats(cluster.broker.address)
            return conflict, {name: text for name, text in figures.items() if name.startswith("subscriptionConflict")}

    # The broker names a conflict before name servers know the group's retry topic.
    wait_until(lambda: f"%RETRY%{group}" in asyncio.run(topics(cluster)), "the route of its retry topic is known")
    return asyncio.run(ask())


async def topics(cluster: Cluster) -> list[str]:
    async with AdminClient(cluster.address) as client:
        return await client.fetch_all_topic_list()


@pytest.mark.proves("Consumers", "a group is suspended, or forbidden a topic")
def test_a_disabled_group_resumes_at_its_offset(
    java: Java, our_servers: OurServers, cluster: Cluster, admin: GroupAdmin
):
    cluster.make_topic("Halt")
    halted = push(java, cluster, "Halt")
    other = java.start("Push", f"namesrv={cluster.address}", "topic=Halt", "group=CG_Other")
    produce(java, cluster, "Halt", "selector:40:1")
    wait_for(halted, 40)
    admin.ready()
    broker = cluster.broker.address

    count = 40
    for forbid, allow in (
        (("enable", "CG_Halt", broker, "false"), ("enable", "CG_Halt", broker, "true")),
        (("readable", "CG_Halt", broker, "Halt", "false"), ("readable", "CG_Halt", broker, "Halt", "true")),
    ):
        admin.told(*forbid)
        produce(java, cluster, "Halt", "selector:40:1", f"first={count}")
        wait_for(other, count + 40)
        assert len(got(halted.text())) == count, f"{forbid}: nothing more has come"
        admin.told(*allow)
        count += 40
        wait_for(halted, count)

    messages = got(halted.text())
    assert sorted(each.n for each in messages) == list(range(count)), "each message once"
    check_content(messages)
    assert our_servers.errors() == []


@pytest.mark.proves("Consumers", "GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, relayed")
@pytest.mark.proves(
    "Consumers",
    "clients of one group that subscribe to different things are named in the log, counted, and shown by "
    "`consumerStatus`",
)
def test_conflicting_clients_are_named_and_each_reports_its_own_state(
    java: Java, our_servers: OurServers, cluster: Cluster, admin: GroupAdmin
):
    cluster.make_topic("Differ")
    one = push(java, cluster, "Differ", "expression=A", "heartbeat=500")
    two = push(java, cluster, "Differ", "expression=A || B", "heartbeat=500")
    wait_until(lambda: "group CG_Differ gets only a part of its messages" in cluster.broker.text(), "it learns that")
    conflict, figures = conflict_and_figures(cluster, "CG_Differ")
    wanted = dict(re.findall(r"(\S+@push-\d+) wants (.*?)(?: and |;)", conflict))
    first, second = (next(name for name in wanted if name.endswith(f"-{each.process.pid}")) for each in (one, two))
    assert wanted == {first: "A", second: "A || B"}
    assert figures == {"subscriptionConflicts": "1", "subscriptionConflictGroups": "1"}

    # Each client is asked for itself, and given a message that the group has consumed.
    produce(java, cluster, "Differ", "selector:4:1", "tags=A")
    wait_until(lambda: len(got(one.text()) + got(two.text())) == 4, "all have come")
    message = (got(one.text()) + got(two.text()))[0]
    admin.ready()
    assert "Differ A || B" in admin.told("running", "CG_Differ", second)
    before = len(got(two.text()))
    assert admin.told("direct", "CG_Differ", second, "Differ", message.msg_id) == ["CR_SUCCESS"]
    assert [each.n for each in got(two.text())[before:]] == [message.n]
    assert "not online" in admin.refused("running", "CG_Differ", "nobody@0")

    one.kill()
    wait_until(lambda: conflict_and_figures(cluster, "CG_Differ")[0] == "", "the one that is left agrees with itself")
    assert cluster.broker.text().count("gets only a part of its messages") == 1, "it learns that once"
    assert our_servers.errors() == []
