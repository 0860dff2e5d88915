"""Apache's mqadmin 5.5.0 against our servers: what it prints is true."""

import re
from pathlib import Path

import pytest

from docs._ext.rocketmq_commands import REQUESTS
from tests.support.java import Java
from tests.support.java_lines import Sent, sent
from tests.support.our_servers import Cluster, OurServers
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java

TOPIC = "Watched"
NUMBER = 200
LATER = 8
RUNTIME_INFO = 28


def admin(java: Java, cluster: Cluster, *commands: str) -> list[str]:
    """Return the output of each command, without blanks at the ends."""
    file = java.home / "commands.txt"
    file.write_text("".join("\t".join(command.split()) + "\n" for command in commands))
    done = java.run("Admin", f"namesrv={cluster.address}", f"file={file}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    outputs = re.split(r"^COMMAND\t.*\n", done.stdout + "\n", flags=re.MULTILINE)[1:-1]
    assert len(outputs) == len(commands), done.stdout + done.stderr
    print("\n".join(f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=True)), done.stderr)
    return [output.strip("\n") for output in outputs]


def table(output: str) -> list[list[str]]:
    """The rows under the headings, up to the first empty line."""
    return [line.split() for line in output.split("\n\n", maxsplit=1)[0].splitlines() if not line.startswith("#")]


def produce(java: Java, cluster: Cluster, *options: str) -> list[Sent]:
    done = java.run("Produce", f"namesrv={cluster.address}", f"topic={TOPIC}", *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return sent(done.stdout)


def settings(output: str) -> dict[str, str]:
    """The lines `name = value` of getBrokerConfig."""
    pairs = (line.partition("=") for line in output.splitlines() if " =" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def fields(output: str) -> dict[str, str]:
    """The lines `name: value`."""
    pairs = (re.split(r"\s*: ", line, maxsplit=1) for line in output.splitlines() if ": " in line)
    return {pair[0].strip(): pair[1].strip() for pair in pairs}


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topics with `cleanup.policy=COMPACTION`: not served",
)
@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topic attribute `message.type`: kept and shown; as in RocketMQ it is the proxy that checks it, not the broker",
)
def test_topics_are_created_shown_and_deleted(java: Java, cluster: Cluster):
    address = cluster.broker.address
    made, by_address, typed, compacted, topics, route, by_list, status, deleted, after, gone = admin(
        java,
        cluster,
        "updateTopic -c DefaultCluster -t Made -r 3 -w 2 -p 4",
        f"updateTopic -b {address} -t Ordered -r 2 -w 2 -o true",
        f"updateTopic -b {address} -t Typed -r 2 -w 2 -a +message.type=FIFO",
        f"updateTopic -b {address} -t Compacted -r 2 -w 2 -a +cleanup.policy=COMPACTION",
        "topicList",
        "topicRoute -t Made",
        "topicRoute -t Made -l",
        "topicStatus -t Made",
        "deleteTopic -c DefaultCluster -t Made",
        "topicList",
        "topicRoute -t Made",
    )
    assert made == (
        f"create topic to {address} success.\n"
        "TopicConfig [topicName=Made, readQueueNums=3, writeQueueNums=2, perm=R--, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={}]"
    )
    assert "orderConf=[broker-a:2]" in by_address
    assert "order=true" in by_address
    assert "attributes={+message.type=FIFO}" in typed
    assert compacted == "", "refused: this broker does not compact"
    assert "Compacted" not in topics.split()
    assert {"Made", "Ordered", "Typed", "TBW102", "SELF_TEST_TOPIC", "broker-a", "DefaultCluster"} <= set(
        topics.split()
    )
    assert f'0:"{address}"' in route or f'"0":"{address}"' in route
    assert re.search(r'"perm":4,\s*"readQueueNums":3,\s*"topicSysFlag":0,\s*"writeQueueNums":2', route)
    assert by_list.split()[-4:] == ["Total:", "1", "3", "2"]
    assert [row[:4] for row in table(status)] == [["broker-a", str(queue), "0", "0"] for queue in range(3)]
    assert deleted.splitlines() == [
        "delete topic [Made] from cluster [DefaultCluster] success.",
        "delete topic [Made] from NameServer success.",
    ]
    assert "Made" not in after.split()
    assert "Ordered" in after.split()
    assert gone == ""


def test_messages_and_groups_are_shown(java: Java, cluster: Cluster):
    cluster.make_topic(TOPIC)
    acknowledged = produce(java, cluster, f"plan=selector:{NUMBER}:1")
    group = java.run("Pull", f"namesrv={cluster.address}", f"topic={TOPIC}", "group=CG_Watched", "suspend=500")
    assert group.returncode == 0, group.stdout[-2000:] + group.stderr
    later = produce(java, cluster, f"plan=selector:{LATER}:1", f"first={NUMBER}")
    wanted = next(each for each in acknowledged if (each.queue_id, each.queue_offset) == (1, 7))
    by_offset, by_key, by_unique_id, no_key, status, progress, groups, by_cluster = admin(
        java,
        cluster,
        f"queryMsgByOffset -t {TOPIC} -b broker-a -i 1 -o 7",
        f"queryMsgByKey -t {TOPIC} -k key{wanted.n}",
        f"queryMsgById -t {TOPIC} -i {wanted.msg_id}",
        f"queryMsgByKey -t {TOPIC} -k nokey",
        f"topicStatus -t {TOPIC}",
        "consumerProgress -g CG_Watched",
        "consumerProgress",
        "topicList -c",
    )
    shown = fields(by_offset)
    check_message(shown, wanted, cluster)
    assert table(by_key)[0][:3] == [wanted.msg_id, "1", "7"]
    check_message(fields(by_unique_id), wanted, cluster)
    assert "MessageTrack [consumerGroup=CG_Watched, trackType=NOT_ONLINE" in by_unique_id
    assert no_key == ""
    each_queue = (NUMBER + LATER) // 4
    assert [row[:4] for row in table(status)] == [["broker-a", str(q), "0", str(each_queue)] for q in range(4)]
    assert len(later) == LATER
    watched = [row for row in table(progress) if row[0] == TOPIC]
    assert [row[2:6] for row in watched] == [
        [str(queue), str(each_queue), str(NUMBER // 4), str(LATER // 4)] for queue in range(4)
    ]
    assert "Consume Diff Total: 8" in progress
    (row,) = [row for row in table(groups) if row[0] == "CG_Watched"]
    assert (row[1], row[2], row[-1]) == ("0", "OFFLINE", str(LATER))
    assert ["DefaultCluster", TOPIC, "CG_Watched"] in table(by_cluster)

    (by_offset_id,) = admin(java, cluster, f"queryMsgById -t {TOPIC} -i {shown['OffsetID']}")
    check_message(fields(by_offset_id), wanted, cluster)


def check_message(shown: dict[str, str], wanted: Sent, cluster: Cluster) -> None:
    host, port = cluster.broker.address.split(":")
    assert shown["OffsetID"][:16] == bytes(map(int, host.split("."))).hex().upper() + f"{int(port):08X}"
    assert int(shown["OffsetID"][16:], 16) == int(shown["CommitLog Offset"])
    assert (shown["Topic"], shown["Queue ID"], shown["Queue Offset"]) == (TOPIC, "1", "7")
    assert (shown["Tags"], shown["Keys"]) == (f"[{'ABC'[wanted.n % 3]}]", f"[key{wanted.n} common]")
    assert (shown["Store Host"], shown["Reconsume Times"]) == (cluster.broker.address, "0")
    assert f"UNIQ_KEY={wanted.msg_id}" in shown["Properties"]
    assert f"n={wanted.n}" in shown["Properties"]


def test_the_broker_is_shown(java: Java, cluster: Cluster):
    produce(java, cluster, "plan=sync:100:1")
    clusters, more, status, config = admin(
        java,
        cluster,
        "clusterList",
        "clusterList -m",
        f"brokerStatus -b {cluster.broker.address}",
        f"getBrokerConfig -b {cluster.broker.address}",
    )
    ((name, broker, number, address, version, *_, active),) = table(clusters)
    assert (name, broker, number, address, active) == (
        "DefaultCluster", "broker-a", "0", cluster.broker.address, "true",
    )  # fmt: skip
    assert version == "V5_5_0"
    assert table(more)[0][:2] == ["DefaultCluster", "broker-a"]
    with RawClient(cluster.broker.address) as client:
        end = client.ask(RUNTIME_INFO).body.split(b'"commitLogMaxOffset":"')[1].split(b'"')[0].decode()
    shown = fields(status)
    assert shown["commitLogMaxOffset"] == end
    assert int(end) > 100 * 100
    assert (shown["commitLogMinOffset"], shown["dispatchBehindBytes"], shown["brokerActive"]) == ("0", "0", "true")
    assert 0 < float(shown["commitLogDiskRatio"]) < 1
    held = settings(config)
    assert held["brokerName"] == "broker-a"
    assert held["listenPort"] == str(cluster.broker.port)
    assert held["mappedFileSizeCommitLog"] == str(16 << 20)
    assert held["storePathRootDir"] == str(cluster.broker.store)


def test_changed_settings_take_effect_and_persist(
    java: Java, cluster: Cluster, our_servers: OurServers, tmp_path: Path
):
    address = cluster.broker.address
    cluster.make_topic(TOPIC)
    changed, changed_too, forbidden, unknown, wrong, config = admin(
        java,
        cluster,
        f"updateBrokerConfig -b {address} -k autoCreateTopicEnable -v false",
        f"updateBrokerConfig -b {address} -k traceOn -v false",
        f"updateBrokerConfig -b {address} -k storePathRootDir -v /elsewhere",
        f"updateBrokerConfig -b {address} -k noSuchKey -v 1",
        f"updateBrokerConfig -b {address} -k longPollingEnable -v perhaps",
        f"getBrokerConfig -b {address}",
    )
    assert changed == changed_too == f"update broker config success, {address}"
    assert (forbidden, unknown, wrong) == ("", "", "")
    held = settings(config)
    assert (held["autoCreateTopicEnable"], held["traceOn"], held["longPollingEnable"]) == ("false", "false", "true")
    assert held["storePathRootDir"] == str(cluster.broker.store)

    done = java.run("Produce", f"namesrv={cluster.address}", "topic=NotThere", "plan=sync:1:1")
    assert done.returncode != 0
    produce(java, cluster, "plan=selector:4:1")
    (shown,) = admin(java, cluster, f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 0")
    assert "TRACE_ON=false" in shown

    settings_file = our_servers.home / "broker-1.properties"
    assert "autoCreateTopicEnable=false" in settings_file.read_text()


def test_the_manual_has_each_sub_command_of_apaches_tool(java: Java, cluster: Cluster):
    shown = java.mqadmin(namesrv=cluster.address).stdout

    assert re.findall(r"^   (\w+)  ", shown, re.MULTILINE) == list(REQUESTS)
