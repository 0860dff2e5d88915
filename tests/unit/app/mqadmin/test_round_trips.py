import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.round_trips import send_result_text
from rocketbroker.client.core.message import SendResult, SendStatus
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


async def test_a_misspelt_broker_gets_no_topic():
    async with admin_stage({"broker-a": {}}) as stage:
        done = await stage.call("sendMsgStatus", "-b", "broker-b")
    assert done == (1, "", "mqadmin: there is no topic of a broker 'broker-b'; the brokers are broker-a\n")
