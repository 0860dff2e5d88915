"""Apache's mqadmin 5.5.0 and ours: the same command lines at the same clusters, Apache's and ours.

Add a command as a row of CASES; tests/support/two_mqadmins.py explains the fields. Each row runs at both clusters.
startMonitoring and clusterRT have no row, as Apache's never end.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from tests.support.admin_schemas import checked_json
from tests.support.java import Java
from tests.support.java_toolchain import require_java
from tests.support.our_servers import OurServers
from tests.support.two_mqadmins import ApacheTool, Case, Ran, any_order, json_value, lines, run_ours, settings, table

pytestmark = [pytest.mark.java, pytest.mark.long]

HELP = Path(__file__).parents[1] / "golden" / "mqadmin" / "help-5.5.0.txt"
TOPIC, GROUP, MESSAGES = "SideBySide", "CG_SideBySide", 12

# Sub-commands that print one JSON value on each line.
LINES = {"printMsg", "printMsgByQueue"}
# Rates, and what grows with each request.
_RATES = ("InTPS(LOAD)", "OutTPS(LOAD)", "Timer(Progress)", "PCWait(ms)", "Hour", "SPACE")


def round_trips(text: str) -> list[str]:
    """Return the answers to sends, without times, ids and places in the queue."""
    return [re.sub(r"rt=\d+ms|msgId=\w+|offsetMsgId=\w+|queueId=\d+|queueOffset=\d+", "", line) for line in lines(text)]


def allocated(text: str) -> dict[str, int]:
    """Return the number of queues of each consumer."""
    return {address: len(queues) for address, queues in json_value(text)["result"].items()}


def changes(text: str) -> list[str]:
    """Return the lines about changed settings that Apache's tool prints too, which shows no values before and after."""
    return [line for line in lines(text) if " -> " not in line]


def metadata(text: str) -> Any:
    """Return an exported file without its time."""
    data = json_value(text)
    data.pop("exportTime", None)
    data.pop("dataVersion", None)
    data.pop("forbiddenTable", None)
    return data


def metrics(text: str) -> Any:
    """Return the parts of exportMetrics that do not change from moment to moment."""
    data = json_value(text)
    for broker in data["evaluateReport"].values():
        for moving in ("tps", "oneDayNum", "diskRatio"):
            broker["runtimeQuota"][moving] = sorted(broker["runtimeQuota"][moving])
        # Written for people, by the number of digits that each language prints.
        broker["runtimeQuota"]["messageAverageSize"] = round(float(broker["runtimeQuota"]["messageAverageSize"]))
    return {**data, "totalData": {name: sorted(values) for name, values in data["totalData"].items()}}


def sums(text: str) -> list[list[str]]:
    """Return the rows of statsAll about the topic with messages, without the rate of messages in."""
    return [[*cells[:2], *cells[3:]] for cells in map(str.split, lines(text)) if cells[0] == TOPIC]


def cells(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in lines(text)]


def message_fields(text: str) -> list[str]:
    """The fields of a message up to its properties, which Apache's client adds to, and the states in groups."""
    parted = text.replace("WARN: No Consumer", "\nWARN: No Consumer\n")  # Apache's begins the next message behind it
    pairs = [re.split(r":\s+", line, maxsplit=1) for line in lines(parted)]
    shown = [": ".join(pair) for pair in pairs if len(pair) > 1 and pair[0] not in {"Properties", "Message Body Path"}]
    return [line for line in shown if not line.startswith("Message Body")]


def printed(text: str) -> list[tuple[str, ...]]:
    """The place, size, id and body of each printed message, and the other lines; queues are in any order."""
    fields = r"queueId=(\d+), storeSize=(\d+), queueOffset=(\d+).* msgId=(\w+), .* BODY: (.*)"
    found = [re.search(fields, line) for line in lines(text)]
    return sorted(each.groups() if each else (line,) for each, line in zip(found, lines(text), strict=True))


def progress(text: str) -> tuple[Any, list[str]]:
    """Return the queues of consumerProgress, and its sums; times of a queue and clients are empty or of one tool."""
    rows, *sums = re.split(r"\n\s*\n", text.strip())
    volatile = [title for title in ("LastTime", "Client IP") if f"#{title}" in rows]
    return table(*volatile)(rows), lines("\n".join(sums))


def moved(text: str) -> Any:
    """Return the table of queues and their new offsets, below a line on the request that Apache's tool alone prints."""
    return table()(text[text.index("#brokerName") :])


def last_word(text: str) -> str:
    """Return the outcome; ours also names the broker."""
    return text.rsplit(maxsplit=1)[-1]


RESET = "resetOffsetByTime -g {group} -t {topic} -s 1000"
CASES = [
    # -- topics
    Case("topicList", any_order),
    Case("topicRoute -t {topic} -l", table()),
    Case("topicRoute -t NoTopic", fails=True),
    Case("topicStatus -t {topic}", table()),
    Case("topicStatus -t NoTopic", fails=True),
    Case("updateTopic -c DefaultCluster -t Made -r 3 -w 2 -p 4"),
    Case("updateTopic -b {broker} -t Ordered -r 2 -w 2 -o true", any_order),
    Case("deleteTopic -c DefaultCluster -t Gone", before=("updateTopic -c DefaultCluster -t Gone -r 1 -w 1",)),
    Case("updateTopicList -c DefaultCluster -f {file}", lambda text: lines(text)[0]),  # Apache's adds its usage
    Case("updateTopicList -b {broker} -f {file}"),
    Case("updateTopicList -b {broker} -f {file}.none", only_ours=True),
    Case("updateTopicList -c NoCluster -f {file}", fails=True),
    Case(
        "updateTopicPerm -c DefaultCluster -t Perm -p 4",
        before=("updateTopic -c DefaultCluster -t Perm -r 2 -w 2 -p 6",),
    ),
    Case("updateTopicPerm -b {broker} -t Perm -p 2", before=("updateTopic -b {broker} -t Perm -r 2 -w 2 -p 4",)),
    Case("updateTopicPerm -b {broker} -t Perm -p 6", before=("updateTopic -b {broker} -t Perm -r 2 -w 2 -p 6",)),
    Case("updateTopicPerm -b {broker} -t Perm -p 9", fails=True),
    Case("updateTopicPerm -b {broker} -t NoTopic -p 6", fails=True),
    Case("updateTopicPerm -c NoCluster -t Perm -p 6", fails=True),
    Case("updateTopicPerm -t Perm -p 6", fails=True),
    Case("topicClusterList -t {topic}"),
    Case("topicClusterList -t NoTopic", fails=True),
    Case("updateOrderConf -m put -t {topic} -v broker-a:4"),
    Case("updateOrderConf -m get -t {topic}", before=("updateOrderConf -m put -t {topic} -v broker-a:2",)),
    Case("updateOrderConf -m delete -t {topic}", before=("updateOrderConf -m put -t {topic} -v broker-a:2",)),
    Case("updateOrderConf -m get -t NoTopic", fails=True),
    Case("updateOrderConf -m put -t {topic}", fails=True),
    Case("updateOrderConf -m what -t {topic}", fails=True),
    Case("allocateMQ -t {topic} -i 192.0.2.1,192.0.2.2,192.0.2.3", allocated),
    Case("allocateMQ -t NoTopic -i 192.0.2.1", fails=True),
    # -- statistics
    Case("statsAll -t {topic}", sums),
    Case("statsAll -a", lambda text: lines(text)[0].split()),
    Case("brokerConsumeStats -b {broker}", table()),
    Case("brokerConsumeStats -b {broker} -l 1000", table()),
    Case("brokerConsumeStats -b {broker} -t 5000 -o false", table()),
    Case("sendMsgStatus -b broker-a -c 2 -s 100", round_trips),
    # -- brokers and clusters
    Case("clusterList", table(*_RATES)),
    Case("clusterList -m", table("InTotalToday", "OutTotalToday")),
    Case("haStatus -b {broker}", lambda text: [line.split()[0] for line in lines(text)]),
    Case("brokerStatus -b {broker}", settings(values=False)),
    Case("brokerStatus -c DefaultCluster", settings(values=False)),
    Case("getBrokerConfig -b {broker}", settings()),
    Case("getBrokerConfig -c DefaultCluster", settings()),
    Case("getBrokerConfig -c NoCluster", fails=True),
    Case("updateBrokerConfig -b {broker} -k traceOn -v false", changes),
    Case("updateBrokerConfig -c DefaultCluster -k traceOn -v true", changes),
    Case("updateBrokerConfig -c DefaultCluster -a true -k traceOn -v true", changes),
    Case("updateBrokerConfig -k traceOn -v true", fails=True),
    # -- name servers
    Case("updateKvConfig -s space -k key -v value"),
    Case("deleteKvConfig -s space -k key", before=("updateKvConfig -s space -k key -v value",)),
    Case("wipeWritePerm -b broker-a", before=("addWritePerm -b broker-a",)),
    Case("addWritePerm -b broker-a", before=("wipeWritePerm -b broker-a",)),
    Case("wipeWritePerm -b nobroker", only_ours=True),
    Case("getNamesrvConfig", settings()),
    Case("updateNamesrvConfig -k enableTopicList -v true", changes),
    Case("updateNamesrvConfig -k kvConfigPath -v elsewhere", fails=True),
    # -- groups and clients
    Case("updateSubGroupList -b {broker} -f {groups}"),
    Case("updateSubGroupList -c DefaultCluster -f {groups}", lambda text: lines(text)[0]),  # Apache's adds its usage
    Case("updateSubGroupList -b {broker} -f {groups}.none", only_ours=True),
    Case("deleteSubGroup -b {broker} -g Gone", before=("updateSubGroup -b {broker} -g Gone",)),
    Case("deleteSubGroup -c DefaultCluster -g Gone -r true", before=("updateSubGroup -b {broker} -g Gone",)),
    Case("deleteSubGroup -c NoCluster -g Gone", fails=True),
    Case("getConsumerConfig -g {group}"),
    Case("getConsumerConfig -g NoGroup", only_ours=True),
    Case("producer -b {broker}"),
    Case("producerConnection -g NoGroup -t {topic}", fails=True),
    Case("consumerConnection -g NoGroup", fails=True),
    Case("exportPopRecord -b {broker}"),
    Case("exportPopRecord -c DefaultCluster"),
    # -- messages; Apache's sendMessage and consumeMessage run once in a JVM
    Case("queryMsgByKey -t {topic} -k key3", cells),
    Case("queryMsgByKey -t {topic} -k key3 -b 0 -e 1", fails=True),
    Case("queryMsgByKey -t {topic} -k nokey", fails=True),
    Case("queryMsgById -t {topic} -i {id}", message_fields),
    Case("queryMsgById -t {topic} -i {id},{id} -f UTF-8", message_fields),
    Case("queryMsgByUniqueKey -t {topic} -i {id}", message_fields),
    Case("queryMsgByUniqueKey -t {topic} -i {id} -a", message_fields),
    Case("queryMsgByUniqueKey -t {topic} -i NoId", fails=True),
    Case("queryMsgByOffset -t {topic} -b broker-a -i 0 -o 1", message_fields),
    Case("queryMsgByOffset -t {topic} -b broker-a -i 0 -o 1000", only_ours=True),
    Case("queryMsgTraceById -i NoId", fails=True),
    Case("printMsg -t {topic}", printed),
    Case("printMsg -t {topic} -d false -s A", printed),
    Case("printMsg -t {topic} -s B", any_order),
    Case("printMsg -t NoTopic", fails=True),
    Case("printMsgByQueue -t {topic} -a broker-a -i 0 -p true -d true -f true", printed),
    Case("printMsgByQueue -t {topic} -a broker-a -i 0 -f true"),
    Case("queryCq -t {topic} -q 0 -i 1 -c 3"),
    Case("queryCq -t {topic} -q 0 -i 0 -c 1 -g {group}"),
    Case("checkMsgSendRT -t {topic} -a 3 -s 10", lambda text: [row.split()[:3] for row in lines(text)[:-1]]),
    # -- exports
    Case("exportMetadata -c DefaultCluster -f {folder}"),
    Case("exportMetadata -c DefaultCluster -f {folder}", metadata, writes="metadata.json"),
    Case("exportMetadata -b {broker} -f {folder} -t -s", metadata, writes="topic.json"),
    Case("exportMetadata -b {broker} -f {folder} -g", metadata, writes="subscriptionGroup.json"),
    Case("exportMetadata -c NoCluster -f {folder}", fails=True),
    Case("exportConfigs -c DefaultCluster -f {folder}", json_value, writes="configs.json"),
    Case("exportMetrics -c DefaultCluster -f {folder}", metrics, writes="metrics.json"),
    # -- offsets, after which the group has offsets, and another group too
    Case("consumerProgress -g {group}", progress, before=(RESET,)),
    Case("consumerProgress -g {group} -t {topic}", progress, before=(RESET,)),
    Case("consumerProgress -g {group} -s true", progress, before=(RESET,)),
    Case("consumerProgress -g NoGroup", fails=True),
    Case("consumerProgress", table(), before=(RESET,)),
    Case("consumerStatus -g {group}", fails=True),
    Case("consumerStatus -g NoGroup", fails=True),
    Case("resetOffsetByTime -g {group} -t {topic} -s -1", moved, before=(RESET,)),
    Case("resetOffsetByTime -g {group} -t {topic} -s now", moved, before=(RESET,)),
    Case("resetOffsetByTime -g {group} -t {topic} -s 2020-01-01#00:00:00:000", moved),
    Case("resetOffsetByTime -g {group} -t {topic} -s 1000", moved),
    Case(
        "resetOffsetByTime -g {group} -t {topic} -s -1 -b {broker} -q 0 -o 2", lambda text: lines(text)[-1].split()[-1]
    ),
    Case("resetOffsetByTime -g {group} -t NoTopic -s now", fails=True),
    Case("resetOffsetByTime -g NoGroup -t {topic} -s now", fails=True),
    Case("resetOffsetByTime -g {group} -t {topic} -s when", fails=True),
    Case("skipAccumulatedMessage -g {group} -t {topic}", moved, before=(RESET,)),
    Case("skipAccumulatedMessage -g {group} -t NoTopic", fails=True),
    Case(
        "cloneGroupOffset -s {group} -d CG_Clone -t {topic}", before=(RESET, "updateSubGroup -b {broker} -g CG_Clone")
    ),
    Case("updateSubGroup -b {broker} -g CG_Made -s true -m true -q 1 -r 5"),
    Case("updateSubGroup -c DefaultCluster -g CG_Made -o true"),
    Case("updateSubGroup -c NoCluster -g CG_Made", fails=True),
    Case("setConsumeMode -b {broker} -g {group} -t {topic} -m POP -q 1"),
    Case("setConsumeMode -c DefaultCluster -g {group} -t {topic} -m PULL"),
    Case("setConsumeMode -c DefaultCluster -g {group} -t {topic} -m PUSH", fails=True),
    # -- removal of what is not used
    Case("cleanExpiredCQ -b {broker}", last_word),
    Case("cleanExpiredCQ -c DefaultCluster", last_word),
    Case("cleanUnusedTopic -b {broker}", last_word),
    Case("cleanUnusedTopic -c DefaultCluster", last_word),
    Case("deleteExpiredCommitLog -b {broker}", last_word),
    Case("deleteExpiredCommitLog -c DefaultCluster", last_word),
]


class Place(NamedTuple):
    """A cluster of one name server and one broker, and the words that its command lines are filled in with."""

    places: Mapping[str, str]


class Pair(NamedTuple):
    """Apache's tool, and the two clusters."""

    tool: ApacheTool
    clusters: Mapping[str, Place]


async def fill(namesrv: str, broker: str) -> str:
    """Create a topic with messages and a group; return the id of the last message."""
    async with AdminClient(namesrv) as admin:
        await admin.create_and_update_topic_config(broker, TopicConfig(TOPIC, 2, 2))
        await admin.create_and_update_subscription_group_config(broker, SubscriptionGroupConfig(GROUP))
        # As the first consumer of a group would.
        await admin.create_and_update_topic_config(broker, TopicConfig(f"%RETRY%{GROUP}", 1, 1))
    async with Producer("PG_SideBySide", namesrv) as producer:
        for number in range(MESSAGES):
            message = Message(TOPIC, f"body {number}".encode(), tags="A", keys=[f"key{number}"])
            sent = await producer.send(message, MessageQueue(TOPIC, "broker-a", number % 2))
    return sent.msg_id


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
    last = asyncio.run(fill(namesrv, broker))
    folder = home / "exported"
    folder.mkdir()
    groups = home / "groups.json"
    groups.write_text(json.dumps([{"groupName": "InFile", "retryMaxTimes": 3}, {"groupName": "InFileToo"}]))
    topics = home / "topics.json"
    topics.write_text(json.dumps([{"topicName": "InFile", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]))
    return Place(
        {
            "namesrv": namesrv,
            "broker": broker,
            "topic": TOPIC,
            "group": GROUP,
            "file": str(topics),
            "groups": str(groups),
            "id": last,
            "folder": str(folder),
        }
    )


@pytest.mark.parametrize("cluster", ["apache", "ours"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.command, marks=[pytest.mark.soak] if case.soak else []) for case in CASES]
)
def test_both_tools_show_the_same(pair: Pair, case: Case, cluster: str):
    places = pair.clusters[cluster].places
    words = case.words(case.command, places)
    theirs = _run(case, places, "apache", lambda: pair.tool.run(words))
    ours = _run(case, places, "ours", lambda: run_ours(words))
    if not (case.fails or case.only_ours or case.only_apache):
        assert case.values(ours) == case.values(theirs)
    if not case.fails_with("ours"):
        for command in case.before:
            run_ours(case.words(command, places))
        text = run_ours([*words, "--json"]).out
        for value in text.splitlines() if words[0] in LINES else [text]:
            checked_json(words[0], value)


def _run(case: Case, places: Mapping[str, str], name: str, tool: Callable[[], Ran]) -> str:
    """Run a command by a tool, with what goes before it; return the text to compare."""
    for command in case.before:
        ran = run_ours(case.words(command, places))
        assert not ran.failed, f"{command}: {ran.err}"
    ran = tool()
    assert ran.failed == case.fails_with(name), f"{name}: {ran}"
    return (Path(places["folder"]) / case.writes).read_text() if case.writes else ran.out


def test_the_recorded_help_is_apaches(pair: Pair):
    recorded = HELP.read_text().split("$ mqadmin help ")[1:]

    found = [pair.tool.run(["help", section.split("\n", 1)[0]]).out.strip() for section in recorded]

    assert found == [section.split("\n", 1)[1].strip() for section in recorded]
