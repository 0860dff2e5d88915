"""Sub-commands of mqadmin about groups, clients and messages, at a running broker: text, JSON and exit codes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import ConsumerNotOnlineError, TopicRouteError
from rocketbroker.client.core.message import Message, SendResult
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked
from tests.support.waiting import until

SETTINGS = {"enablePropertyFilter": "true", "traceTopicEnable": "true"}


class Ran(NamedTuple):
    """Outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Place:
    """A broker with topic T of two queues, and mqadmin to run there."""

    def __init__(self, mq: RocketMQServer) -> None:
        self.mq = mq

    async def run(self, *words: str) -> Ran:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-n", self.mq.namesrv_addr])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    async def text(self, *words: str) -> list[str]:
        ran = await self.run(*words)
        assert (ran.code, ran.err) == (0, "")
        return ran.lines

    async def json(self, *words: str) -> Any:
        ran = await self.run(*words, "--json")
        assert (ran.code, ran.err) == (0, "")
        return checked(words[0], json.loads(ran.out))

    async def json_lines(self, *words: str) -> list[Any]:
        ran = await self.run(*words, "--json")
        assert (ran.code, ran.err) == (0, "")
        return [checked(words[0], json.loads(line)) for line in ran.lines]

    async def client_of(self, group: str) -> str:
        """Return the id of the one client of a group, once its broker knows it."""
        async with AdminClient(self.mq.namesrv_addr) as admin, asyncio.timeout(60):
            while True:
                try:
                    return (await admin.examine_consumer_connection_info(group)).connection_set[0].client_id
                except (ConsumerNotOnlineError, TopicRouteError):
                    await asyncio.sleep(0.05)

    async def send(self, body: bytes, queue_id: int = 0, **fields: Any) -> SendResult:
        async with Producer("PG", self.mq.namesrv_addr) as producer:
            return await producer.send(Message("T", body, **fields), MessageQueue("T", "broker-a", queue_id))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with RocketMQServer(SETTINGS) as mq:
        async with AdminClient(mq.namesrv_addr) as admin:
            await admin.create_and_update_topic_config(mq.broker_addr, TopicConfig("T", 2, 2))
        yield Place(mq)


async def test_a_message_is_found_by_key_id_and_offset(place: Place):
    first = await place.send(b"one", keys="k1 k2", tags="A")
    await place.send(b"two", keys="k1")
    titles, *rows = await place.text("queryMsgByKey", "-t", "T", "-k", "k1")
    assert titles.split() == ["#Message", "ID", "#QID", "#Offset", "#IndexKey"]
    assert rows[0].split()[:3] == [first.msg_id, "0", "0"]
    assert len(rows) == 2
    found = await place.json("queryMsgByKey", "-t", "T", "-k", "k2")
    assert [each["msgId"] for each in found["messages"]] == [first.msg_id]
    for option, time, code in (("-b", "2020-01-01", 0), ("-b", "2999-01-01", 1), ("-e", "2020-01-01T00:00:00Z", 1)):
        ran = await place.run("queryMsgByKey", "-t", "T", "-k", "k2", option, time)
        assert (first.msg_id in ran.out, ran.code) == (code == 0, code), time
    turned = await place.run("queryMsgByKey", "-t", "T", "-k", "k2", "-b", "2021-01-01", "-e", "2020-01-01")
    assert (turned.code, "is after -e" in turned.err) == (2, True)
    none = await place.run("queryMsgByKey", "-t", "T", "-k", "k9")
    assert (none.code, none.err) == (1, "mqadmin: topic T has no message with the key 'k9' in this time\n")
    for words in (
        ("queryMsgByUniqueKey", "-t", "T", "-i", first.msg_id),
        ("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "0"),
        ("queryMsgById", "-t", "T", "-i", first.offset_msg_id),
    ):
        shown = {line.partition(":")[0]: line.partition(":")[2].strip() for line in await place.text(*words)}
        assert (shown["Tags"], shown["Keys"], shown["Message Body"]) == ("[A]", "[k1 k2]", "one")
        assert (await place.json(*words))["messages"][0]["msgId"] == first.msg_id


async def test_a_wrong_place_of_a_message_is_answered_by_the_places_there_are(place: Place):
    await place.send(b"one")
    queue = ("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "0")
    assert (await place.run(*queue, "-o", "7")).err == (
        "mqadmin: queue 0 of topic T at broker-a has no message at offset 7; it has 0 to 0\n"
    )
    assert "there are broker-a" in (await place.run("printMsgByQueue", "-t", "T", "-a", "b", "-i", "0")).err
    assert "it has 0 to 1" in (await place.run("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "5")).err
    assert "no message with the unique id" in (await place.run("queryMsgByUniqueKey", "-t", "T", "-i", "X")).err


async def test_a_message_is_sent_again_and_consumed_directly(place: Place):
    sent = await place.send(b"body", keys="k", tags="A", properties={"own": "value"})
    again = await place.json("queryMsgById", "-t", "T", "-i", sent.msg_id, "-s", "true")
    assert again["sent"][0]["originMsgId"] == sent.msg_id
    (copy,) = (await place.json("queryMsgById", "-t", "T", "-i", again["sent"][0]["msgId"]))["messages"]
    assert (copy["keys"], copy["tags"], copy["properties"]["own"]) == (["k"], "A", "value")
    got: list[str] = []

    async def take(message: ReceivedMessage) -> None:
        got.append(message.msg_id)

    async with PushConsumer("CG", place.mq.namesrv_addr, handler=take) as consumer:
        await consumer.subscribe("T")
        await until(lambda: len(got) == 2)
        client = await place.client_of("CG")
        lines = await place.text("queryMsgById", "-t", "T", "-i", sent.msg_id, "-g", "CG", "-d", client)
        assert "consumeResult=CR_SUCCESS" in lines[0]
        assert got.count(sent.msg_id) == 2
        result = await place.json("queryMsgByUniqueKey", "-t", "T", "-i", sent.msg_id, "-g", "CG", "-d", client)
        assert result["results"][0]["result"]["consumeResult"] == "CR_SUCCESS"
    half = await place.run("queryMsgById", "-t", "T", "-i", sent.msg_id, "-g", "CG")
    assert half.code == 2
    assert "-g (group) and -d (client) need each other" in half.err


async def test_clients_are_shown(place: Place):
    async def take(_message: ReceivedMessage) -> None:
        pass

    async with (
        PushConsumer("CG", place.mq.namesrv_addr, handler=take) as consumer,
        Producer("PG", place.mq.namesrv_addr) as producer,
    ):
        await consumer.subscribe("T", "A")
        await producer.send(Message("T", b"x", tags="A"))
        client = await place.client_of("CG")
        lines = await place.text("consumerConnection", "-g", "CG")
        assert lines[0].split() == ["#ClientId", "#ClientAddr", "#Language", "#Version"]
        assert lines[1].split()[0] == client
        assert "ConsumeType: CONSUME_PASSIVELY" in lines
        shown = await place.json("consumerConnection", "-g", "CG", "-b", place.mq.broker_addr)
        assert {"topic": "T", "subExpression": "A", "expressionType": "TAG"} in shown["subscriptions"]
        assert (await place.text("producerConnection", "-g", "PG", "-t", "T"))[0].startswith("0001  ")
        assert len((await place.json("producerConnection", "-g", "PG", "-t", "T"))["clients"]) == 1
        assert (await place.text("producer", "-b", place.mq.broker_addr))[0].startswith("producer group (PG) instance")
        producers = (await place.json("producer", "-b", place.mq.broker_addr))["producers"]
        assert [each["group"] for each in producers] == ["PG"]
        lines = await place.text("consumerStatus", "-g", "CG", "-i", client)
        assert {"#Consumer Properties#", "#Consumer Subscription#", "#Consumer Offset#"} <= set(lines)
        state = await place.json("consumerStatus", "-g", "CG", "-i", client, "-s")
        assert {each["topic"] for each in state["queues"]} >= {"T"}
        (round_,) = await place.json_lines("startMonitoring", "--rounds", "1")
        assert [each["topic"] for each in round_["undone"] if each["consumerGroup"] == "CG"] == ["%RETRY%CG", "T"]
        lines = await place.text("startMonitoring", "--rounds", "1")
        assert lines[0].endswith("beginRound")
        assert lines[-1].endswith("endRound")
    offline = await place.run("consumerConnection", "-g", "CG")
    assert (offline.code, "not online" in offline.err) == (1, True)


async def test_groups_are_created_from_a_file_shown_and_deleted(place: Place, tmp_path: Path):
    file = tmp_path / "groups.json"
    file.write_text('[{"groupName": "G1", "retryMaxTimes": 3}, {"groupName": "G2"}]')
    cluster = ("-c", "DefaultCluster")
    made = await place.json("updateSubGroupList", *cluster, "-f", str(file))
    assert made == {"brokers": [place.mq.broker_addr], "groups": ["G1", "G2"]}
    lines = await place.text("getConsumerConfig", "-g", "G1")
    assert lines[0].strip("=") == "DefaultCluster:broker-a"
    assert f"{'retryMaxTimes':<40}=  3" in lines
    shown = await place.json("getConsumerConfig", "-g", "G2")
    assert shown["brokers"][0]["subscriptionGroupConfig"]["retryMaxTimes"] == 16
    gone = await place.json("deleteSubGroup", *cluster, "-g", "G1", "-r", "true")
    assert gone["brokers"] == [place.mq.broker_addr]
    unknown = await place.run("getConsumerConfig", "-g", "G1")
    assert (unknown.code, unknown.err) == (1, "mqadmin: no broker has the consumer group 'G1'\n")
    records = await place.json("exportPopRecord", "-b", place.mq.broker_addr)
    assert records == {"brokers": [place.mq.broker_addr], "dryRun": False}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON list of groups"),
        ("[]", "the list has no group"),
        ('[{"groupName": "a b"}]', "illegal characters"),
        ('[{"groupName": "G", "retryMaxTimes": "many"}]', "no JSON list of groups"),
    ],
)
async def test_a_wrong_file_of_groups_is_refused(place: Place, tmp_path: Path, text: str, reason: str):
    file = tmp_path / "groups.json"
    file.write_text(text)
    ran = await place.run("updateSubGroupList", "-b", place.mq.broker_addr, "-f", str(file))
    assert ran.code == 2
    assert reason in " ".join(ran.err.split())
    missing = await place.run("updateSubGroupList", "-b", place.mq.broker_addr, "-f", str(tmp_path / "none"))
    assert "No such file" in " ".join(missing.err.split())


async def test_messages_are_sent_and_printed(place: Place):
    sent = await place.json("sendMessage", "-t", "T", "-p", "hello", "-k", "k1", "-c", "A", "-b", "broker-a", "-i", "1")
    assert (sent["brokerName"], sent["queueId"], sent["sendResult"]) == ("broker-a", 1, "SEND_OK")
    titles, row = await place.text("sendMessage", "-t", "T", "-p", "other", "-b", "broker-a", "-i", "1")
    assert titles.split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#MsgId"]
    assert row.split()[:3] == ["broker-a", "1", "SEND_OK"]
    assert "needs -b" in (await place.run("sendMessage", "-t", "T", "-p", "x", "-i", "1")).err
    lines = await place.text("printMsg", "-t", "T")
    assert lines[0] == "minOffset=0, maxOffset=0, MessageQueue [topic=T, brokerName=broker-a, queueId=0]"
    assert [line.rpartition(" BODY: ")[2] for line in lines if line.startswith("MSGID")] == ["hello", "other"]
    assert [each["msgId"] for each in await place.json_lines("printMsg", "-t", "T", "-s", "A")] == [sent["msgId"]]
    by_queue = ("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "1")
    assert await place.text(*by_queue, "-f", "true") == [f"Tag: {'A':<30} Count: 1"]
    assert (await place.json_lines(*by_queue, "-f", "true"))[-1] == {"tags": [{"tag": "A", "count": 1}]}
    assert len(await place.json_lines(*by_queue, "-p", "true")) == 2
    consumed = await place.text("consumeMessage", "-t", "T", "-c", "1", "-b", "broker-a", "-i", "1", "-o", "1")
    assert consumed[-1].endswith("BODY: other")
    assert len(await place.json_lines("consumeMessage", "-t", "T")) == 2
    assert "lies in the future" in " ".join(
        (await place.run("consumeMessage", "-t", "T", "-s", "2999-01-01")).err.split()
    )


async def test_no_tool_joins_a_group_or_commits(place: Place):
    await place.send(b"one")
    await place.text("printMsg", "-t", "T")
    await place.text("consumeMessage", "-t", "T", "-g", "CG")
    await place.text("tail", "T", "--last", "1", "--no-follow")
    async with AdminClient(place.mq.namesrv_addr) as admin:
        groups = await admin.query_topic_consume_by_who("T")
        offsets = (await admin.get_all_consumer_offset(place.mq.broker_addr)).offset_table
    assert groups == []
    assert offsets == {}


async def test_round_trips_and_queue_entries_are_shown(place: Place):
    found = await place.json("checkMsgSendRT", "-t", "T", "-a", "3", "-s", "16")
    assert [each["queueId"] for each in found["sends"]] == [0, 1, 0]
    lines = await place.text("checkMsgSendRT", "-t", "T", "-a", "2")
    assert lines[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
    assert lines[-1].startswith("Avg RT: ")
    lines = await place.text("queryCq", "-t", "T", "-q", "0", "-i", "1", "-c", "2")
    assert [line for line in lines if line.startswith("idx")] == ["idx: 1", "idx: 2"]
    entries = await place.json("queryCq", "-t", "T", "-q", "0", "-i", "0", "-g", "CG")
    assert (entries["maxQueueIndex"], len(entries["queueData"])) == (3, 3)


async def test_a_trace_is_shown(place: Place):
    sent = await place.json("sendMessage", "-t", "T", "-p", "traced", "-m", "true")

    async def traces() -> Ran:
        return await place.run("queryMsgTraceById", "-i", sent["msgId"])

    async with asyncio.timeout(60):
        while (ran := await traces()).code:  # noqa: ASYNC110 - the trace arrives at a broker
            await asyncio.sleep(0.05)
    titles, row = ran.lines[:2]
    assert titles.split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert (row.split()[0], row.split()[-1]) == ("Pub", "success")
    shown = await place.json("queryMsgTraceById", "-i", sent["msgId"])
    assert [(each["type"], each["topic"]) for each in shown["traces"]] == [("Pub", "T")]
    none = await place.run("queryMsgTraceById", "-i", "nothing")
    assert "has no trace of nothing" in none.err
