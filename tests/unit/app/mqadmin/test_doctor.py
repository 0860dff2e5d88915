"""Each check of mqadmin doctor: silent on a healthy cluster, and one finding for its fault."""

import re
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from rocketbroker.app.mqadmin.checks.cluster_facts import (
    BrokerFacts,
    CertificateFacts,
    ClusterFacts,
    GroupFacts,
    NameServerFacts,
    skew_of,
)
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.doctor import CHECKS, examine
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import HAConnectionRuntimeInfo, HARuntimeInfo, OffsetWrapper
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.recommended_commands import check_commands

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
NAMES = ("10.0.0.8:9876", "10.0.0.9:9876")
QUEUES = [MessageQueue("T", "broker-a", number) for number in (0, 1)]


def member(queue: MessageQueue, text: str = "*", names: str = ";".join(NAMES)) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        {"PROP_NAMESERVER_ADDR": f"{names};"},
        [SubscriptionData("T", text), SubscriptionData("%RETRY%G", "*")],
        {queue: ProcessQueueInfo()},
    )


def healthy() -> ClusterFacts:
    """A cluster of a master, a slave and a group with two clients, with nothing wrong."""
    brokers = {"broker-a": BrokerData("C", "broker-a", {0: MASTER, 1: SLAVE})}
    info = ClusterInfo(brokers, {"C": ["broker-a"]})
    slaves = [HAConnectionRuntimeInfo("10.0.0.2:4000", 900, 100, True, 2048, 1000)]
    runtime = {"commitLogDiskRatio": "0.3", "openFiles": "50", "openFilesLimit": "1024"}
    clients = ConsumerConnection(
        [Connection("one", "10.0.1.1:5"), Connection("two", "10.0.1.2:5")],
        {"T": SubscriptionData("T", "*"), "%RETRY%G": SubscriptionData("%RETRY%G", "*")},
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
    )
    return ClusterFacts(
        [NameServerFacts(each, info, {"T", "Tools", "%RETRY%G"}) for each in NAMES],
        [
            BrokerFacts("C", "broker-a", 0, MASTER, dict(runtime), {}, HARuntimeInfo(True, 1000, 1, slaves), {}, 400),
            BrokerFacts("C", "broker-a", 1, SLAVE, dict(runtime), {}, HARuntimeInfo(False), {}, -900),
        ],
        [
            GroupFacts(
                "G",
                clients,
                "",
                {"one": member(QUEUES[0]), "two": member(QUEUES[1])},
                {queue: OffsetWrapper(10, 7, 8, 0) for queue in QUEUES},
            )
        ],
        {"T": TopicRouteData(None, [QueueData("broker-a", 2, 2, 6)], list(brokers.values()))},
    )


def test_nothing_is_found_in_a_healthy_cluster():
    assert examine(healthy()) == []


def changed(path: str, value: Any) -> ClusterFacts:
    """Return a healthy cluster with one value changed, as ``brokers.0.error``."""
    facts = deepcopy(healthy())
    at: Any = facts
    *names, last = path.split("/")
    for name in names:
        at = at[int(name)] if isinstance(at, list) else at[name] if isinstance(at, dict) else getattr(at, name)
    if isinstance(at, dict):
        at[last] = value
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        setattr(at, last, value)
    return facts


NO_ROUTE = TopicRouteData()
OTHER = ClusterInfo({"broker-a": BrokerData("C", "broker-a", {1: SLAVE})}, {"C": ["broker-a"]})
FAULTS = [
    ("name_servers/1/error", "connect refused", "nameServer", "name server 10.0.0.9:9876", "does not answer: connect"),
    ("name_servers/1/clusters", OTHER, "nameServer", "broker broker-a", "is not registered at name server 10.0.0.9"),
    ("brokers/0/error", "timed out", "advertisedAddress", "broker broker-a", "10.0.0.1:10911, which does not answer"),
    ("brokers/0/address", "127.0.0.1:10911", "advertisedAddress", "broker broker-a", "other machines cannot reach"),
    (
        "routes/Tolls",
        NO_ROUTE,
        "noRoute",
        "topic Tolls",
        "not exist on any broker, .* false .*did you mean Tools?",
    ),
    ("routes/Tools", NO_ROUTE, "noRoute", "topic Tools", "has no queue in its route"),
    (
        "routes/T",
        TopicRouteData(None, [QueueData("broker-a", 2, 2, 4)], [BrokerData("C", "broker-a", {0: MASTER})]),
        "noRoute",
        "topic T",
        "cannot be written: its permission is 4",
    ),
    (
        "routes/T",
        TopicRouteData(None, [QueueData("broker-a", 2, 2, 6)], [BrokerData("C", "broker-a", {1: SLAVE})]),
        "noRoute",
        "topic T",
        r"no master is registered for its brokers \(broker-a\)",
    ),
    ("certificates", [CertificateFacts("broker b", MASTER, "h", "", 3.0)], "certificate", "broker b", "in 3.0 days"),
    (
        "brokers/0/runtime",
        {"plainTextConnections": "2", "lastPlainTextPeer": "10.0.1.7"},
        "plainText",
        "broker broker-a",
        "2 connections from other machines since its start used plain text, the last from 10.0.1.7",
    ),
    ("groups/0/conflict", "one: a, two: b", "subscriptions", "group G", "one: a, two: b"),
    ("groups/0/running/two", member(QUEUES[1], "a"), "subscriptions", "group G", r"one has T: \*; two has T: a"),
    ("groups/0/running/two", member(QUEUES[0]), "unownedQueue", "group G", "no client owns T broker-a:1, where 3 mess"),
    ("groups/0/clients", None, "unownedQueue", "group G", "6 messages wait in 2 queues, and none of its clients"),
    (
        "groups/0/running/two",
        member(QUEUES[1], names=NAMES[0]),
        "nameServersOfMembers",
        "group G",
        "one ask 10.0.0.8:9876;10.0.0.9:9876; two ask 10.0.0.8:9876",
    ),
    (
        "brokers/0/runtime/commitLogDiskRatio",
        "0.80",
        "disk",
        "broker broker-a",
        "80% full: above 75% it removes expired files at once .* above 85% others too",
    ),
    (
        "brokers/0/runtime/commitLogDiskRatio",
        "0.87",
        "disk",
        "broker broker-a",
        "85% it removes messages before fileRes",
    ),
    ("brokers/1/runtime/commitLogDiskRatio", "0.93", "disk", r"broker broker-a \(slave 1\)", "above 90% it rejects"),
    ("brokers/1/runtime/replicationProblem", "it is ahead", "replica", r".*slave 1.*", "its master: it is ahead"),
    (
        "brokers/0/replication/ha_connection_info",
        [HAConnectionRuntimeInfo("10.0.0.2:4000", 0, 1 << 30, False, 0, 0)],
        "replica",
        "broker broker-a",
        "10.0.0.2:4000 is 1,073,741,824 bytes behind",
    ),
    (
        "brokers/0/replication/ha_connection_info",
        [],
        "replica",
        "broker broker-a",
        "of 1 registered slave .* 0 copy its log",
    ),
    (
        "brokers/0/runtime/notReady",
        "store: a sync failed; disk: it is 99 % full",
        "store",
        "broker broker-a",
        "its store takes no message: a sync failed$",
    ),
    ("expected", ("broker-a", "broker-b"), "missingBroker", "broker broker-b", "the file of clusters names it"),
    (
        "groups/0/running/two",
        member(MessageQueue("T", "broker-b", 0)),
        "missingBroker",
        "broker broker-b",
        "client two of group G still has its queues",
    ),
    (
        "brokers/0/broker_id",
        2,
        "missingBroker",
        "broker broker-a",
        "its slave 10.0.0.[12]:10911 is registered, and no m",
    ),
    ("brokers/1/skew_ms", -65_000, "clock", ".*slave 1.*", "65 s behind that of this machine"),
    ("brokers/0/runtime/openFiles", "900", "limit", "broker broker-a", "900 open files of at most 1,024"),
]


IDS = [f"{fault[2]}-{fault[0]}" for fault in FAULTS]


@pytest.mark.parametrize(("path", "value", "check", "subject", "evidence"), FAULTS, ids=IDS)
def test_a_fault_is_found_with_its_evidence_and_a_remedy(
    path: str, value: object, check: str, subject: str, evidence: str
):

    found = [each for each in examine(changed(path, value)) if each.check == check]

    assert len(found) == 1, examine(changed(path, value))
    assert re.fullmatch(subject, found[0].subject)
    assert re.search(evidence, found[0].evidence), found[0].evidence
    assert len(found[0].remedy) > 20


def test_a_topic_that_a_broker_has_and_no_name_server_is_registered_again():
    facts = changed("routes/New", NO_ROUTE)
    facts.brokers[0].topics["New"] = TopicConfig("New", 24, 12)

    (found,) = examine(facts)

    assert found.evidence == "has no route, though broker broker-a has the topic: its registration has not arrived"
    assert found.remedy.endswith(f"then: mqadmin updateTopic -b {MASTER} -t New -r 24 -w 12 -p 6")


def test_no_broker_at_all_is_the_cause():
    facts = ClusterFacts([NameServerFacts(NAMES[0])], routes={"T": NO_ROUTE})
    assert [each.evidence for each in examine(facts)] == [
        "has no route, for no broker is registered at the name servers"
    ]


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING),
        (ConsumeType.CONSUME_PASSIVELY, MessageModel.BROADCASTING),
    ],
)
def test_queues_that_nobody_owns_by_design_are_no_fault(kind: ConsumeType, model: MessageModel):
    facts = changed("groups/0/running/two", member(QUEUES[0]))
    clients = facts.groups[0].clients
    assert clients is not None
    facts.groups[0].clients = msgspec.structs.replace(clients, consume_type=kind, message_model=model)
    assert examine(facts) == []


def test_the_logical_queues_of_a_static_topic_have_no_broker_and_own_the_physical_ones():
    facts = healthy()
    for at, client in enumerate(("one", "two")):
        facts.groups[0].running[client] = member(MessageQueue("T", "__syslo__global__", at))
    assert examine(facts) == []


def test_a_client_that_does_not_answer_may_own_the_queue():
    facts = healthy()
    del facts.groups[0].running["two"]
    (found,) = examine(facts)
    assert (found.check, found.severity) == ("silentClient", Severity.WARNING)
    assert found.evidence == "6 messages wait, and client two does not report its state"


def test_popped_queues_wait_for_a_client_too():
    facts = changed("groups/0/clients", None)
    facts.groups[0].progress = {QUEUES[0]: OffsetWrapper(10, 9, 9, 0, 0)}
    (found,) = examine(facts)
    assert found.evidence == "1 message waits in 1 queue, and none of its clients is connected"


def test_a_topic_that_only_one_name_server_has_is_found_in_any_order():
    for lacking in (0, 1):
        facts = healthy()
        facts.name_servers[lacking].topics = {"%RETRY%G"}
        found = examine(facts)
        text = f"only name server {NAMES[1 - lacking]} has its route, and {NAMES[lacking]} does not"
        assert [(each.check, each.evidence) for each in found] == [("noRoute", text)]


def test_a_process_that_hangs_is_no_wrong_address():
    facts = changed("brokers/0/error", "timed out")
    facts.brokers[0].accepts = True
    (found,) = examine(facts)
    assert found.evidence == "accepts connections at 10.0.0.1:10911, but does not answer: timed out"
    assert found.remedy.startswith("its process hangs")


def test_a_broker_whose_write_permission_was_wiped_gets_it_back():
    brokers = [BrokerData("C", "broker-a", {0: MASTER})]
    facts = changed("routes/T", TopicRouteData(None, [QueueData("broker-a", 2, 2, 4)], brokers))
    facts.brokers[0].topics = {"T": TopicConfig("T", 2, 2, 6)}
    (found,) = examine(facts)
    assert found.remedy == "mqadmin addWritePerm -b broker-a"
    facts.brokers[0].topics = {"T": TopicConfig("T", 2, 2, 4)}
    (found,) = examine(facts)
    assert found.remedy == f"mqadmin updateTopicPerm -b {MASTER} -t T -p 6"


def test_the_retention_that_is_proposed_is_shorter_than_that_of_the_broker():
    facts = changed("brokers/0/runtime/commitLogDiskRatio", "0.93")
    facts.brokers[0].settings = {"fileReservedTime": "8", "cleanFileForciblyEnable": "false"}
    (found,) = examine(facts)
    assert "keep messages for 4 h in place of 8 h, which removes all older ones" in found.remedy


def replicated(slaves: int, registered: bool, **settings: str) -> list[str]:
    """Return the evidence about the replicas of a master with connected slaves, registered or not."""
    facts = healthy()
    if not registered:
        del facts.brokers[1]
    facts.brokers[0].settings = settings
    replication = facts.brokers[0].replication
    assert replication is not None
    replication.ha_connection_info = [HAConnectionRuntimeInfo("10.0.0.2:4", 900, 100, True)] * slaves
    return [each.evidence for each in examine(facts) if each.check == "replica"]


def test_slaves_that_name_servers_forgot_are_missed_by_their_master():
    only = "waits for 1 slave with each message (inSyncReplicas=2), and no slave copies its log"
    assert replicated(0, False, brokerRole="SYNC_MASTER", inSyncReplicas="2") == [only]
    automatic = {"inSyncReplicas": "3", "minInSyncReplicas": "2", "enableAutoInSyncReplicas": "true"}
    (found,) = replicated(0, False, brokerRole="SYNC_MASTER", **automatic)
    assert "(minInSyncReplicas=2)" in found
    (found,) = replicated(0, False, brokerRole="SYNC_MASTER")
    assert found.startswith("is a SYNC_MASTER, and no slave copies its log")
    assert replicated(0, False, brokerRole="ASYNC_MASTER") == []
    assert replicated(1, True, brokerRole="SYNC_MASTER", inSyncReplicas="2") == []


def test_a_slave_that_copies_and_is_not_registered_is_found():
    (found,) = replicated(2, True)
    assert found.startswith("2 slaves copy its log (10.0.0.2:4, 10.0.0.2:4), and the name servers know 1 of them")


def test_errors_come_first():
    facts = changed("brokers/0/skew_ms", 60_000)
    facts.name_servers[1].error = "refused"
    assert [each.severity for each in examine(facts)] == [Severity.ERROR, Severity.WARNING]


def test_remedies_are_commands_that_exist():
    remedies = [finding.remedy for fault in FAULTS for finding in examine(changed(fault[0], fault[1]))]
    commands = check_commands(remedies)
    assert {"updateTopicPerm", "updateTopic", "deleteSubGroup", "updateBrokerConfig", "haStatus"} <= commands


def test_each_check_has_a_fault_here():
    found: list[Finding] = [finding for fault in FAULTS for finding in examine(changed(fault[0], fault[1]))]
    silent = [check.__name__ for check in CHECKS if not any(list(check(changed(f[0], f[1]))) for f in FAULTS)]
    assert (silent, bool(found)) == ([], True)


@pytest.mark.parametrize(
    ("runtime", "skew"),
    [
        ({"bootTimestamp": "1000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}, 0),
        ({"bootTimestamp": "9000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}, 8000),
        ({"bootTimestamp": "9000"}, None),
        ({"bootTimestamp": "9000", "runtime": "[ -1 days, 23 hours, 59 minutes, 52 seconds ]"}, -93_784_000),
        ({"runtime": "[ 1 days ]", "bootTimestamp": "soon"}, None),
    ],
)
def test_the_clock_of_a_broker_follows_from_start_and_uptime(runtime: dict[str, str], skew: int | None):
    assert skew_of(runtime, 1000 + ((26 * 60 + 3) * 60 + 4) * 1000) == skew
