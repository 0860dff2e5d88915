"""The sub-commands against scripted servers: what they ask, print and exit with."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.command import EXIT_FAILED
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import decode_message_id, host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import Connection, ConsumerConnection, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList, KVTable, TopicList
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_schemas import checked_json
from tests.support.ports import LOOPBACK, free_ports
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of

RUNTIME = {
    "putTps": "12.5 3.0 1.0",
    "getTransferredTps": "0.25 0 0",
    "brokerVersionDesc": "V5_5_0",
    "commitLogDiskRatio": "0.26",
    "brokerActive": "true",
    "pageCacheLockTimeMills": "0",
    "msgPutTotalTodayMorning": "10",
    "msgPutTotalTodayNow": "35",
}
QUEUE = MessageQueue("T", "broker-a", 1)


def record() -> bytes:
    host = host_bytes("127.0.0.1", PORT.port)
    properties = encode_properties({"TAGS": "a", "KEYS": "k1", "UNIQ_KEY": "U" * 32})
    return encode_record(1, 0, 2, 500, 0, 1000, host, 2000, host, 0, 0, b"hello \xff", b"T", properties)


class PORT:
    """Return the address of the scripted broker, which its messages name."""

    port = 0


def not_online(_fields: dict[str, str], _body: bytes) -> Command:
    return response(ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[CG] not online")


def scripts() -> dict[int, Script]:
    def answer(body: Callable[[], bytes]) -> Script:
        return lambda _fields, _body: response(body=body())

    offsets = OffsetWrapper(10, 7, 8, 0)
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: answer(KVTable(RUNTIME).encode),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answer(GroupList(["CG"]).encode),
        RequestCode.GET_TOPIC_STATS_INFO: answer(TopicStatsTable({QUEUE: TopicOffset(0, 3, 2000)}, 1.5).encode),
        RequestCode.GET_CONSUME_STATS: lambda fields, _body: response(
            body=ConsumeStats({QUEUE: offsets} if fields["consumerGroup"] == "CG" else {}, 2.25).encode()
        ),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: not_online,
        RequestCode.UPDATE_AND_CREATE_TOPIC: answer(bytes),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: answer(bytes),
        RequestCode.SET_MESSAGE_REQUEST_MODE: lambda _fields, body: (
            response() if b'"topic":"T"' in body else response(ResponseCode.TOPIC_NOT_EXIST, "topic[No] not exist")
        ),
        RequestCode.DELETE_TOPIC_IN_BROKER: answer(bytes),
        RequestCode.GET_TOPIC_CONFIG: lambda fields, _body: (
            response(body=TopicConfig("Unrouted").encode())
            if fields["topic"] == "Unrouted"
            else response(ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker.")
        ),
        RequestCode.VIEW_MESSAGE_BY_ID: answer(record),
        RequestCode.QUERY_MESSAGE: lambda fields, _body: (
            response(0, None, {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}, record())
            if fields["key"] == "U" * 32
            else response(ResponseCode.QUERY_NOT_FOUND, "can not find message")
        ),
    }


class Stage:
    """A broker with topic T and group CG, its name server, and mqadmin to call."""

    def __init__(self, broker: ScriptedServer, names: ScriptedServer) -> None:
        self.broker = broker
        self.names = names

    async def call(self, *args: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*args, "-n", self.names.address])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    async def json(self, *args: str) -> Any:
        code, out, err = await self.call(*args, "--json")
        assert (code, err) == (0, "")
        return checked_json(args[0], out)

    async def lines(self, *args: str) -> list[list[str]]:
        code, out, err = await self.call(*args)
        assert (code, err) == (0, "")
        return [line.split() for line in out.splitlines()]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(ScriptedServer(scripts()))
        PORT.port = int(broker.address.rpartition(":")[2])
        route = route_of({"broker-a": broker.address})
        extra: dict[int, Script] = {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _fields, _body: response(
                body=TopicList(["T", "%RETRY%CG"]).encode()
            ),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: lambda _fields, _body: response(),
            RequestCode.PUT_KV_CONFIG: lambda _fields, _body: response(),
        }
        names = await stack.enter_async_context(name_server({"T": route, "%RETRY%CG": route}, extra))
        yield Stage(broker, names)


async def test_cluster_list(stage: Stage):
    head, row = await stage.lines("clusterList")
    assert head[:4] == ["#Cluster", "Name", "#Broker", "Name"]
    assert row[:5] == ["DefaultCluster", "broker-a", "0", stage.broker.address, "V5_5_0"]
    assert row[5:] == ["12.50(-,-ms)", "0.25(-,-ms|-,-ms)", "-", "0", "-", "0.2600", "true"]
    head, row = await stage.lines("clusterList", "-m", "-c", "DefaultCluster")
    assert row == ["DefaultCluster", "broker-a", "-", "-", "25", "-"]
    (broker,) = (await stage.json("clusterList"))["brokers"]
    assert broker == {
        "clusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "addr": stage.broker.address,
        "runtime": RUNTIME,
        "error": None,
    }


async def test_a_broker_that_is_silent_is_listed_and_is_a_failure(stage: Stage):
    await stage.broker.stop()
    code, out, err = await stage.call("clusterList")
    assert code == 1
    assert stage.broker.address in out
    assert err.startswith(f"mqadmin: {stage.broker.address}: connect to")


async def test_topic_list(stage: Stage):
    assert await stage.lines("topicList") == [["T"], ["%RETRY%CG"]]
    assert await stage.json("topicList") == {"topics": ["T", "%RETRY%CG"]}
    assert (await stage.lines("topicList", "-c"))[1:] == [["DefaultCluster", "T", "CG"]]
    rows = [{"clusterName": "DefaultCluster", "topic": "T", "consumerGroups": ["CG"], "error": None}]
    assert await stage.json("topicList", "-c") == {"topics": rows}


async def test_topic_route(stage: Stage):
    code, out, _ = await stage.call("topicRoute", "-t", "T")
    assert (code, f'\t\t\t\t0:"{stage.broker.address}"\n' in out) == (0, True)
    rows = (await stage.lines("topicRoute", "-t", "T", "-l"))[1:]
    assert rows[0] == ["DefaultCluster", "broker-a", f"{{0={stage.broker.address}}}", "4", "4", "6"]
    assert rows[1] == ["Total:", "1", "4", "4"]
    route = await stage.json("topicRoute", "-t", "T")
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": stage.broker.address}


async def test_a_topic_without_a_route_is_a_failure(stage: Stage):
    code, out, err = await stage.call("topicRoute", "-t", "Unknown")
    assert (code, out) == (1, "")
    assert err == "mqadmin: No topic route info in name server for the topic: Unknown\n"


async def test_update_topic(stage: Stage):
    options = ("-t", "New", "-r", "3", "-w", "2", "-p", "6", "-o", "true", "-u", "true", "-a", "+a=b,-c")
    code, out, _ = await stage.call("updateTopic", "-c", "DefaultCluster", *options)
    assert code == 0
    assert out.splitlines() == [
        f"create topic to {stage.broker.address} success.",
        "set cluster orderConf. isOrder=true, orderConf=[broker-a:2]",
        (
            "TopicConfig [topicName=New, readQueueNums=3, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
            "topicSysFlag=1, order=true, attributes={+a=b, -c=}]"
        ),
    ]
    (asked,) = stage.broker.of(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert asked.fields == {
        "topic": "New",
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "1",
        "order": "true",
        "attributes": "+a=b,-c",
        "force": "false",
    }
    (asked,) = stage.names.of(RequestCode.PUT_KV_CONFIG)
    assert asked.fields == {"namespace": "ORDER_TOPIC_CONFIG", "key": "New", "value": "broker-a:2"}
    made = await stage.json("updateTopic", "-b", stage.broker.address, "-t", "New")
    assert (made["brokers"], made["topicConfig"]["readQueueNums"]) == ([stage.broker.address], 8)


async def test_set_consume_mode(stage: Stage):
    options = ("-t", "T", "-g", "CG", "-m", "POP", "-q", "2")
    code, out, _ = await stage.call("setConsumeMode", "-c", "DefaultCluster", *options)
    assert (code, out.splitlines()) == (
        0,
        [
            f"set consume mode to {stage.broker.address} success.",
            "topic[T] group[CG] consume mode[POP] popShareQueueNum[2]",
        ],
    )
    (asked,) = stage.broker.of(RequestCode.SET_MESSAGE_REQUEST_MODE)
    assert json.loads(asked.body) == {"topic": "T", "consumerGroup": "CG", "mode": "POP", "popShareQueueNum": 2}
    made = await stage.json("setConsumeMode", "-b", stage.broker.address, "-t", "T", "-g", "CG", "-m", "PULL")
    assert made == {"brokers": [stage.broker.address]}


async def test_a_mode_that_a_broker_rejects_is_a_failure(stage: Stage):
    code, out, err = await stage.call("setConsumeMode", "-c", "DefaultCluster", "-t", "No", "-g", "CG", "-m", "POP")
    assert (code, out) == (1, "")
    assert err.startswith(f"mqadmin: {stage.broker.address}: CODE: 17 DESC: topic[No] not exist; TOPIC_NOT_EXIST: ")


async def test_update_sub_group(stage: Stage):
    code, out, _ = await stage.call("updateSubGroup", "-c", "DefaultCluster", "-g", "CG", "-r", "5")
    first, second = out.splitlines()
    assert (code, first) == (0, f"create subscription group to {stage.broker.address} success.")
    assert second == (
        "SubscriptionGroupConfig{groupName=CG, consumeEnable=true, consumeFromMinEnable=false, "
        "consumeBroadcastEnable=false, consumeMessageOrderly=false, retryQueueNums=1, retryMaxTimes=5, "
        "groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, "
        "customizedRetryPolicy=null}, brokerId=0, whichBrokerWhenConsumeSlowly=1, "
        "notifyConsumerIdsChangedEnable=true, groupSysFlag=0, consumeTimeoutMinute=15, "
        "subscriptionDataSet=null, attributes={}}"
    )
    policy = '{"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}}'
    options = ("-s", "false", "-m", "true", "-d", "true", "-o", "true", "-q", "2", "-i", "3", "-w", "4", "-a", "false")
    group = ("-b", stage.broker.address, "-g", "CG", "-p", policy, "--attributes", "+a=b")
    made = await stage.json("updateSubGroup", *group, *options)
    assert made["brokers"] == [stage.broker.address]
    *_, asked = stage.broker.of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    wanted = {
        "groupName": "CG",
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": True,
        "retryQueueNums": 2,
        "retryMaxTimes": 16,
        "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}},
        "brokerId": 3,
        "whichBrokerWhenConsumeSlowly": 4,
        "notifyConsumerIdsChangedEnable": False,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
        "attributes": {"+a": "b"},
    }
    assert json.loads(asked.body) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-g", "a b"), "contains illegal characters"),
        (("-g", "CG", "-p", "{"), "--groupRetryPolicy: "),
        (("-g", "CG", "-p", '{"type": "NEVER"}'), "--groupRetryPolicy: "),
        (("-g", "CG", "-r", "many"), "'-r' / '--retryMaxTimes'"),
    ],
)
async def test_a_group_that_cannot_be_is_refused(stage: Stage, options: tuple[str, ...], message: str):
    code, _, err = await stage.call("updateSubGroup", "-c", "DefaultCluster", *options)
    assert (code, message in err) == (2, True), err
    assert stage.broker.of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) == []


async def test_delete_topic(stage: Stage):
    deleted = await stage.json("deleteTopic", "-c", "DefaultCluster", "-t", "T")
    assert deleted["brokers"] == [stage.broker.address]


async def test_delete_topic_asks_brokers_and_name_servers(stage: Stage):
    code, out, _ = await stage.call("deleteTopic", "-c", "DefaultCluster", "-t", "T")
    assert (code, out.splitlines()) == (
        0,
        ["delete topic [T] from cluster [DefaultCluster] success.", "delete topic [T] from NameServer success."],
    )
    assert [asked.fields for asked in stage.broker.of(RequestCode.DELETE_TOPIC_IN_BROKER)] == [{"topic": "T"}]
    (asked,) = stage.names.of(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert asked.fields == {"topic": "T", "clusterName": "DefaultCluster"}


async def test_a_topic_that_is_nowhere_is_not_deleted(stage: Stage):
    code, out, err = await stage.call("deleteTopic", "-c", "DefaultCluster", "-t", "Nope")
    assert (code, out) == (1, "")
    assert err.startswith("mqadmin: there is no topic 'Nope', and nothing was deleted; ")
    assert stage.broker.of(RequestCode.DELETE_TOPIC_IN_BROKER) == []
    assert stage.names.of(RequestCode.DELETE_TOPIC_IN_NAMESRV) == []


async def test_a_topic_that_a_broker_alone_has_is_deleted(stage: Stage):
    code, _, err = await stage.call("deleteTopic", "-c", "DefaultCluster", "-t", "Unrouted")
    assert (code, err) == (0, "")
    assert [asked.fields for asked in stage.broker.of(RequestCode.DELETE_TOPIC_IN_BROKER)] == [{"topic": "Unrouted"}]


async def test_a_cluster_that_is_not_there_is_a_failure(stage: Stage):
    code, _, err = await stage.call("deleteTopic", "-c", "Other", "-t", "T")
    assert (code, err) == (1, "mqadmin: cluster 'Other' does not exist; the name server knows: DefaultCluster\n")


async def test_topic_status(stage: Stage):
    lines = await stage.lines("topicStatus", "-t", "T")
    assert lines[1][:4] == ["broker-a", "1", "0", "3"]
    assert lines[1][5].endswith(":02,000")
    assert lines[2:] == [[], ["Topic", "Put", "TPS:", "1.5"]]
    row = {"brokerName": "broker-a", "queueId": 1, "minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": 2000}
    data = {"topic": "T", "queues": [row], "topicPutTps": 1.5, "silentBrokers": [], "failedBrokers": []}
    assert await stage.json("topicStatus", "-t", "T") == data


async def test_consumer_progress_of_a_group(stage: Stage):
    lines = await stage.lines("consumerProgress", "-g", "CG")
    assert lines[1] == ["T", "broker-a", "1", "10", "7", "3", "1", "N/A"]
    assert [line[-1] for line in lines[3:]] == ["2.25", "3", "1"]
    data = await stage.json("consumerProgress", "-g", "CG", "-s", "true")
    assert (data["group"], data["diffTotal"], data["inflightTotal"]) == ("CG", 3, 1)
    assert data["queues"][0]["clientIP"] is None


async def test_consumer_progress_of_all_groups(stage: Stage):
    assert (await stage.lines("consumerProgress"))[1] == ["CG", "0", "OFFLINE", "2", "3"]
    (row,) = (await stage.json("consumerProgress"))["groups"]
    assert (row["group"], row["count"], row["diffTotal"]) == ("CG", 0, 3)


async def test_consumer_progress_skips_retry_topics_that_name_no_group():
    retry_topics = ["%RETRY%CG", f"%RETRY%{'G' * 121}"]
    topics: Script = lambda _fields, _body: response(body=TopicList(retry_topics).encode())  # noqa: E731
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(ScriptedServer(scripts()))
        routes = dict.fromkeys(retry_topics, route_of({"broker-a": broker.address}))
        script: dict[int, Script] = {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics}
        names = await stack.enter_async_context(name_server(routes, script))
        (row,) = (await Stage(broker, names).json("consumerProgress"))["groups"]
    assert row["group"] == "CG"


async def test_consumer_progress_of_an_online_group():
    clients = ConsumerConnection(
        [Connection("192.0.2.2@1", "192.0.2.2:5", "JAVA", 513), Connection("192.0.2.3@1", "192.0.2.3:5", "JAVA", 401)],
        {},
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
    )
    info = b'{"mqTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"commitOffset":7}}}'
    online: dict[int, Script] = {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda _fields, _body: response(body=clients.encode()),
        RequestCode.GET_CONSUMER_RUNNING_INFO: lambda fields, _body: response(
            body=info if fields["clientId"] == "192.0.2.3@1" else b'{"mqTable":{}}'
        ),
    }
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(ScriptedServer({**scripts(), **online}))
        route = route_of({"broker-a": broker.address})
        topics: Script = lambda _fields, _body: response(body=TopicList(["%RETRY%CG"]).encode())  # noqa: E731
        names = await stack.enter_async_context(
            name_server({"%RETRY%CG": route}, {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics})
        )
        stage = Stage(broker, names)
        (row,) = (await stage.json("consumerProgress"))["groups"]
        assert (row["count"], row["version"], row["type"], row["model"]) == (2, "V4_9_4", "PUSH", "CLUSTERING")
        data = await stage.json("consumerProgress", "-g", "CG", "-s", "true")
    assert data["queues"][0]["clientIP"] == "192.0.2.3"


async def test_consumer_progress_prints_what_is_known_where_a_broker_does_not_answer():
    nobody = f"{LOOPBACK}:{free_ports()}"
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(ScriptedServer(scripts()))
        route = route_of({"broker-a": broker.address, "broker-b": nobody})
        topics: Script = lambda _fields, _body: response(body=TopicList(["%RETRY%CG"]).encode())  # noqa: E731
        names = await stack.enter_async_context(
            name_server({"%RETRY%CG": route}, {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics})
        )
        stage = Stage(broker, names)
        code, out, err = await stage.call("consumerProgress", "-g", "CG")
        assert code == EXIT_FAILED
        assert err.startswith(f"mqadmin: {nobody}: ")
        assert [line.split() for line in out.splitlines()[1:3]] == [
            ["T", "broker-a", "1", "10", "7", "3", "1", "N/A"],
            ["-", nobody, *["-"] * 6],
        ]
        code, out, err = await stage.call("consumerProgress")
        assert (code, out.splitlines()[1].split()) == (EXIT_FAILED, ["CG", "0", "OFFLINE", "2", "3"])
        assert f"CG, without {nobody}: " in err
        code, out, _ = await stage.call("consumerProgress", "--json")
        (row,) = json.loads(out)["groups"]
        assert (code, [each["addr"] for each in row["silentBrokers"]]) == (EXIT_FAILED, [nobody])
        assert row["failedBrokers"] == []


async def test_query_msg_by_id(stage: Stage):
    offset_id = f"7F000001{PORT.port:08X}{500:016X}"
    assert decode_message_id(offset_id).offset == 500
    for msg_id in (offset_id, "U" * 32):
        (message,) = (await stage.json("queryMsgById", "-t", "T", "-i", msg_id))["messages"]
        assert (message["offsetMsgId"], message["msgId"], message["body"]) == (offset_id, "U" * 32, "aGVsbG8g/w==")
        assert message["tracks"] == [
            {
                "consumerGroup": "CG",
                "trackType": "NOT_ONLINE",
                "exceptionDesc": "CODE:206 DESC:the consumer group[CG] not online",
            }
        ]
    code, out, _ = await stage.call("queryMsgById", "-t", "T", "-i", offset_id)
    assert (code, out.splitlines()[0]) == (0, f"OffsetID:            {offset_id}")
    assert "Message Body:        hello \\xff" in out.splitlines()
    assert "MessageTrack [consumerGroup=CG, trackType=NOT_ONLINE" in out
    assert stage.broker.of(RequestCode.VIEW_MESSAGE_BY_ID)[0].fields == {"topic": "T", "offset": "500"}


async def test_one_of_several_ids_that_is_not_found_is_a_failure(stage: Stage):
    code, out, err = await stage.call("queryMsgById", "-t", "T", "-i", "nothing," + "U" * 32, "--json")
    assert (code, err) == (1, "mqadmin: nothing: topic T has no message with this id\n")
    assert len(json.loads(out)["messages"]) == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cleanExpiredCQ", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
        ("cleanUnusedTopic", RequestCode.CLEAN_UNUSED_TOPIC),
        ("deleteExpiredCommitLog", RequestCode.DELETE_EXPIRED_COMMITLOG),
    ],
)
async def test_cleaning_on_one_broker_on_those_of_a_cluster_and_on_all(name: str, code: int):
    done: dict[int, Script] = {code: lambda _fields, _body: response()}
    refused: dict[int, Script] = {code: lambda _fields, _body: response(ResponseCode.SYSTEM_ERROR, "disk full")}
    async with AsyncExitStack() as stack:
        a, slave, b = [await stack.enter_async_context(ScriptedServer(each)) for each in (done, done, refused)]
        brokers = {
            "broker-a": BrokerData("C1", "broker-a", {0: a.address, 1: slave.address}),
            "broker-b": BrokerData("C2", "broker-b", {0: b.address}),
        }
        info = ClusterInfo(brokers, {"C1": ["broker-a"], "C2": ["broker-b"]})
        clusters: Script = lambda _fields, _body: response(body=info.encode())  # noqa: E731
        names = await stack.enter_async_context(name_server({}, {RequestCode.GET_BROKER_CLUSTER_INFO: clusters}))
        stage = Stage(a, names)

        assert await stage.call(name, "-b", f" {slave.address}") == (0, f"{slave.address} success\n", "")
        assert await stage.json(name, "-c", "C1") == {"brokers": [a.address, slave.address]}
        code_, out, err = await stage.call(name)
        assert (code_, out) == (1, f"{a.address} success\n{slave.address} success\n")
        assert err.startswith(f"mqadmin: {b.address}: ")
        assert "disk full" in err
        code_, out, err = await stage.call(name, "-c", "C3")
        assert (code_, out) == (1, "")
        assert err == "mqadmin: cluster 'C3' does not exist; the name server knows: C1, C2\n"
        assert [len(each.of(code)) for each in (a, slave, b)] == [2, 3, 1]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["cleanExpiredCQ", "-b", "127.0.0.1:1", "-c", "C", "-n", "127.0.0.1:2"], "either -b (one broker) or -c"),
        (["topicRoute"], "Missing option '-t'"),
        (["noSuchCommand"], "No such command"),
        (["setConsumeMode", "-t", "T", "-g", "G", "-m", "POP", "-n", "127.0.0.1:2"], "either -b (one broker) or -c"),
        (["setConsumeMode", "-t", "T", "-g", "G", "-m", "PUSH", "-c", "C"], "PUSH"),
        (["updateTopic", "-t", "T", "-n", "127.0.0.1:2"], "either -b (one broker) or -c"),
        (["updateTopic", "-t", "a/../b", "-c", "C", "-n", "127.0.0.1:2"], "illegal characters"),
        (["updateTopic", "-t", "T", "-c", "C", "-a", "a=b", "-n", "127.0.0.1:2"], "does not change an attribute"),
        (["updateTopic", "-t", "T", "-c", "C", "-o", "perhaps"], "perhaps"),
        (["updateTopic", "-t", "T", "-c", "C", "-r", "x"], "'-r' / '--readQueueNums'"),
        (["queryMsgById", "-t", "T", "-i", ",", "-n", "127.0.0.1:2"], "no message id"),
        (["queryMsgById", "-t", "T", "-i", "x", "-f", "klingon", "-n", "127.0.0.1:2"], "klingon"),
        (["topicRoute", "-t", "T", "-n", "nowhere"], "'nowhere' is not an address"),
        (["topicList"], "no name server given"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


async def test_the_environment_names_the_name_server(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NAMESRV_ADDR", stage.names.address)
    done = await asyncio.to_thread(CliRunner().invoke, app, ["topicList"])
    assert (done.exit_code, done.stdout) == (0, "T\n%RETRY%CG\n")


def test_help_lists_the_sub_commands_and_shows_one():
    runner = CliRunner()
    assert "queryMsgById" in runner.invoke(app, ["help"]).stdout
    assert runner.invoke(app, ["help", "topicRoute"]).stdout.split()[:3] == ["Usage:", "root", "topicRoute"]
    assert runner.invoke(app, ["help", "nothing"]).exit_code == 2


async def test_a_group_that_does_not_exist_is_named(stage: Stage):
    for args in (["consumerProgress", "-g", "nope"], ["consumerStatus", "-g", "nope"], ["popStatus", "-g", "nope"]):
        code, out, err = await stage.call(*args)
        assert (code, out) == (1, "")
        assert err.startswith("mqadmin: there is no consumer group 'nope': no route of %RETRY%nope")


async def test_a_broker_and_a_name_server_that_are_mixed_up_are_named(stage: Stage):
    stage.names, names = stage.broker, stage.names
    code, _, err = await stage.call("topicList")
    assert (code, "is a broker; give the address of a name server" in err) == (1, True)
    stage.names = names
    code, _, err = await stage.call("cleanExpiredCQ", "-b", names.address)
    assert code == 1
    assert "REQUEST_CODE_NOT_SUPPORTED: check that the address is that of a broker or of a name server" in err
