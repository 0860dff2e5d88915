"""Apache's mqadmin 5.5.0 and ours: the same command lines at the same clusters, Apache's and ours.

Add a command as a row of CASES; tests/support/two_mqadmins.py explains the fields. Each row runs at both clusters.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from tests.support.java import Java
from tests.support.java_toolchain import require_java
from tests.support.our_servers import OurServers
from tests.support.two_mqadmins import ApacheTool, Case, any_order, run_ours, table

pytestmark = [pytest.mark.java, pytest.mark.long]

TOPIC, GROUP, MESSAGES = "SideBySide", "CG_SideBySide", 12

CASES = [
    # -- topics
    Case("topicList", any_order),
    Case("topicRoute -t {topic} -l", table()),
    Case("topicStatus -t {topic}", table()),
    # -- brokers and clusters
    Case("clusterList", table("InTPS(LOAD)", "OutTPS(LOAD)", "Timer(Progress)", "PCWait(ms)", "Hour")),
]


class Place(NamedTuple):
    """A cluster of one name server and one broker, and the words that its command lines are filled in with."""

    places: Mapping[str, str]


class Pair(NamedTuple):
    """Apache's tool, and the two clusters."""

    tool: ApacheTool
    clusters: Mapping[str, Place]


async def fill(namesrv: str, broker: str) -> None:
    """Create a topic with messages and a group."""
    async with AdminClient(namesrv) as admin:
        await admin.create_and_update_topic_config(broker, TopicConfig(TOPIC, 2, 2))
        await admin.create_and_update_subscription_group_config(broker, SubscriptionGroupConfig(GROUP))
    async with Producer("PG_SideBySide", namesrv) as producer:
        for number in range(MESSAGES):
            await producer.send(Message(TOPIC, f"body {number}".encode(), tags="A", keys=[f"key{number}"]))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require_java()
    java_home, our_home = tmp_path_factory.mktemp("java"), tmp_path_factory.mktemp("ours")
    java, ours = Java(java_home), OurServers(our_home)
    try:
        yield Pair(ApacheTool(java), {"apache": _apache(java, java_home), "ours": _ours(ours, our_home)})
    finally:
        java.close()
        ours.close()


def _apache(java: Java, home: Path) -> Place:
    namesrv = java.namesrv()
    return _place(namesrv.address, java.broker(namesrv.address).address, home)


def _ours(servers: OurServers, home: Path) -> Place:
    namesrv = servers.namesrv()
    return _place(namesrv.address, servers.broker(namesrv.address).address, home)


def _place(namesrv: str, broker: str, home: Path) -> Place:
    asyncio.run(fill(namesrv, broker))
    folder = home / "exported"
    folder.mkdir()
    return Place(
        {
            "namesrv": namesrv,
            "broker": broker,
            "topic": TOPIC,
            "group": GROUP,
            "folder": str(folder),
        }
    )


@pytest.mark.parametrize("cluster", ["apache", "ours"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.command, marks=[pytest.mark.soak] if case.soak else []) for case in CASES]
)
def test_both_tools_show_the_same(pair: Pair, case: Case, cluster: str):
    places = pair.clusters[cluster].places
    found = []
    for tool in (pair.tool.run, run_ours):
        for command in case.before:
            assert not (ran := run_ours(case.words(command, places))).failed, f"{command}: {ran.err}"
        ran = tool(case.words(case.command, places))
        assert ran.failed == (case.fails or (case.only_ours and tool is run_ours)), ran
        found.append((Path(places["folder"]) / case.writes).read_text() if case.writes else ran.out)
    if not case.fails and not case.only_ours:
        theirs, ours = map(case.values, found)
        assert ours == theirs
