import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.round_trips import cluster_rt, send_msg_status, send_result_text
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError
from rocketbroker.client.core.message import Message, SendResult, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
from tests.support.admin_stage import admin_stage


def test_an_answer_is_shown_as_rocketmq_shows_it():
    result = SendResult(SendStatus.SEND_OK, "ID", "OFFSET", MessageQueue("T", "broker-a", 2), 7)
    assert send_result_text(result) == (
        "SendResult [sendStatus=SEND_OK, msgId=ID, offsetMsgId=OFFSET, messageQueue=MessageQueue [topic=T, "
        "brokerName=broker-a, queueId=2], queueOffset=7, recallHandle=null]"
    )


async def ours(server: RocketMQServer, *words: str) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-n", server.namesrv_addr])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture
async def server() -> AsyncIterator[RocketMQServer]:
    async with RocketMQServer() as running:
        yield running


async def test_each_send_is_shown_but_the_first_that_connects(server: RocketMQServer):
    text = await ours(server, "sendMsgStatus", "-b", server.broker_names[0], "-c", "3", "-s", "100")
    shape = r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, .*queueOffset=\d+, recallHandle=null\]"
    assert [bool(re.fullmatch(shape, line)) for line in text.splitlines()] == [True] * 3
    text = await ours(server, "sendMsgStatus", "-b", server.broker_names[0], "-c", "2", "--json")
    sends = checked_json("sendMsgStatus", text)
    assert [send["brokerName"] for send in sends["sends"]] == [server.broker_names[0]] * 2


async def test_the_mean_of_each_broker_is_shown(server: RocketMQServer):
    head, row = (await ours(server, "clusterRT", "-a", "3", "-s", "10")).splitlines()
    assert head.split() == ["#Cluster", "Name", "#Broker", "Name", "#RT", "#successCount", "#failCount"]
    assert row.split()[1] == server.broker_names[0]
    assert row.split()[3:] == ["3", "0"]
    line = await ours(server, "clusterRT", "-a", "2", "-p", "true", "-m", "room")
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\|room\|\w+\|{server.broker_names[0]}\|\d+\n", line)
    found = checked_json("clusterRT", await ours(server, "clusterRT", "-a", "2", "--json"))
    assert [(row["successCount"], row["failCount"], row["error"]) for row in found["brokers"]] == [(2, 0, None)]


async def test_a_broker_that_refuses_is_a_failure_with_its_reason():
    async with admin_stage({"T": {}}) as stage:
        done = await stage.call("clusterRT", "-a", "2")
        wrong = await stage.call("clusterRT", "-c", "No")
    assert done.code == 1
    assert done.rows[1][3:] == ["0", "2"]
    assert done.err.startswith("mqadmin: T: 2 sends failed; ")
    assert wrong.err == "mqadmin: cluster 'No' does not exist; the name server knows: DefaultCluster\n"


@pytest.mark.parametrize("name", ["broker-b", "T"])
async def test_a_name_that_no_broker_has_gets_no_message_and_no_topic(name: str):
    async with admin_stage({"broker-a": {}}) as stage:
        done = await stage.call("sendMsgStatus", "-b", name)
    assert done == (1, "", f"mqadmin: no registered broker is named {name!r}; there are broker-a\n")


async def test_a_broker_without_its_topic_has_failed_and_gets_none():
    async with admin_stage({"broker-a": {}, "broker-b": {}}, topics=("broker-b",)) as stage:
        stage.brokers["broker-a"].asked.clear()
        done = await stage.call("clusterRT", "-a", "2")
        asked = stage.brokers["broker-a"].asked
    assert (done.code, done.rows[1][1:], asked) == (1, ["broker-a", "0.00", "0", "2"], [])
    assert done.err.startswith(
        "mqadmin: broker-a: 2 sends failed; broker broker-a has no topic of its name, to which the messages go\n"
    )


async def test_each_broker_is_measured_by_itself(server: RocketMQServer, monkeypatch: pytest.MonkeyPatch):
    # Another broker has a topic of the same name; RocketMQ's tool sends to either.
    queues = await queues_at(server)
    sent: list[Any] = []
    send = Producer.send

    async def remember(producer: Producer, message: Message, queue: Any = None) -> SendResult:
        sent.append(queue)
        return await send(producer, message, queue)

    monkeypatch.setattr(Producer, "send", remember)
    await ours(server, "clusterRT", "-a", str(len(queues) + 1))
    assert sent == [*queues, queues[0]]


async def queues_at(server: RocketMQServer) -> list[MessageQueue]:
    name = server.broker_names[0]
    async with AdminClient(server.namesrv_addr) as admin:
        (data,) = (await admin.examine_topic_route_info(name)).queue_datas
    return [MessageQueue(name, name, queue_id) for queue_id in range(data.write_queue_nums)]


def stop_at(number: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the send of this number end by an error."""
    send, count = Producer.send, itertools.count(1)

    async def stopped(producer: Producer, message: Message, queue: Any = None) -> SendResult:
        if next(count) == number:
            raise error
        return await send(producer, message, queue)

    monkeypatch.setattr(Producer, "send", stopped)


@pytest.mark.parametrize("as_json", [False, True])
async def test_sends_before_a_failure_are_shown(
    server: RocketMQServer, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    stop_at(4, monkeypatch, ClientError("no luck"))
    async with AdminClient(server.namesrv_addr) as admin:
        with pytest.raises(ClientError) as raised:
            await send_msg_status(admin, server.broker_names[0], count=9, as_json=as_json)

    assert raised.value.__notes__ == ["3 of 10 messages were sent before"]
    out = capsys.readouterr().out
    assert (len(checked_json("sendMsgStatus", out)["sends"]) if as_json else out.count("SEND_OK")) == 2


async def test_ctrl_c_shows_the_brokers_so_far(
    server: RocketMQServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    stop_at(4, monkeypatch, asyncio.CancelledError())
    async with AdminClient(server.namesrv_addr) as admin:
        with pytest.raises(asyncio.CancelledError):
            await cluster_rt(admin, 1_000_000, as_json=True)

    (row,) = checked_json("clusterRT", capsys.readouterr().out)["brokers"]
    assert (row["brokerName"], row["successCount"], row["failCount"]) == (server.broker_names[0], 3, 0)
