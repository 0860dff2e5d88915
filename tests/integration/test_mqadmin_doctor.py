"""mqadmin doctor at running servers: silent while all is well, and a finding for each fault that is made."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
from tests.support.our_servers import OurServers
from tests.support.ports import free_ports
from tests.support.waiting import until


async def doctor(namesrv: str, *options: str) -> tuple[int, dict[str, dict[str, Any]], list[str]]:
    """Return the exit code, the findings by check, and what is not known."""
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "-n", namesrv, "--json", *options])
    data = checked_json("doctor", done.stdout)
    return done.exit_code, {each["check"]: each for each in data["findings"]}, data["unknown"]


async def ignore(_message: ReceivedMessage) -> None:
    await asyncio.sleep(0)


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    # A disk of the machine that is full is no fault of these tests.
    settings = {"diskMaxUsedSpaceRatio": "95", "diskSpaceWarningLevelRatio": "99"}
    async with asyncio.timeout(60), RocketMQServer(settings) as server:
        yield server


async def test_a_healthy_cluster_has_no_fault(mq: RocketMQServer):
    async with (
        Producer("PG", mq.namesrv_addr) as producer,
        PushConsumer("CG", mq.namesrv_addr, handler=ignore) as consumer,
    ):
        await producer.send(Message("T", b"1"))
        await consumer.subscribe("T")
        await until(lambda: any(queue.topic == "T" for queue in consumer.queues))

        code, findings, unknown = await doctor(mq.namesrv_addr)

    assert (code, findings, unknown) == (0, {}, [])


async def test_faults_of_groups_topics_and_servers_are_found(mq: RocketMQServer):
    dead = f"127.0.0.1:{free_ports()}"
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("PG", mq.namesrv_addr))
        for number in range(8):
            await producer.send(Message("T", b"%d" % number, tags="a"))
        one = await stack.enter_async_context(PushConsumer("CG", mq.namesrv_addr, handler=ignore))
        await one.subscribe("T", "a")
        two = await stack.enter_async_context(PushConsumer("CG", f"{mq.namesrv_addr};{dead}", handler=ignore))
        await two.subscribe("T", "b")
        async with PushConsumer("Gone", mq.namesrv_addr, handler=ignore) as gone:
            await gone.subscribe("Other")
        await until(lambda: one.queues and two.queues)

        code, findings, _ = await doctor(f"{mq.namesrv_addr};{dead}", "-t", "Missing")

    assert code == 1
    assert findings["nameServer"]["subject"] == f"name server {dead}"
    assert findings["subscriptions"]["subject"] == "group CG"
    assert findings["nameServersOfMembers"]["subject"] == "group CG"
    assert findings["noRoute"]["subject"] in {"topic Missing", "topic Other"}
    assert "does not exist on any broker" in findings["noRoute"]["evidence"]


async def test_messages_of_a_group_without_clients_are_found(mq: RocketMQServer):
    async with Producer("PG", mq.namesrv_addr) as producer:
        async with PushConsumer("CG", mq.namesrv_addr, handler=ignore) as consumer:
            await producer.send(Message("T", b"1"))
            await consumer.subscribe("T")
            await until(lambda: consumer.queues)
        await producer.send(Message("T", b"2"))
        code, findings, _ = await doctor(mq.namesrv_addr)

    assert code == 1
    assert findings["unownedQueue"]["evidence"].endswith("none of its clients is connected")


async def test_an_unknown_group_is_an_error_and_a_group_without_retry_topic_is_none(mq: RocketMQServer):
    async with AdminClient(mq.namesrv_addr) as admin:
        await admin.create_and_update_subscription_group_config(mq.broker_addr, SubscriptionGroupConfig("Billing"))
    command = ["doctor", "-n", mq.namesrv_addr, "-g"]
    done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "Biling"])
    assert (done.exit_code, "did you mean Billing?" in " ".join(done.stderr.split())) == (2, True)
    done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "Billing"])
    assert (done.exit_code, done.stdout) == (0, "no faults found; asked 1 name server, 1 broker and 1 group\n")


async def test_warnings_are_left_out_on_demand(mq: RocketMQServer):
    async with Producer("PG", mq.namesrv_addr) as producer:
        async with PushConsumer("CG", mq.namesrv_addr, handler=ignore) as consumer:
            await producer.send(Message("T", b"1"))
            await consumer.subscribe("T")
            await until(lambda: consumer.queues)
        await producer.send(Message("T", b"2"))
        assert (await doctor(mq.namesrv_addr, "--severity", "error"))[:2] == (0, {})


@pytest.mark.long
def test_a_broker_that_hangs_is_named_once_and_the_others_still_answer(tmp_path: Path):
    with closing(OurServers(tmp_path)) as servers:
        namesrv = servers.namesrv()
        alive = servers.broker(namesrv.address, brokerName="broker-b")
        dead = servers.broker(namesrv.address, brokerName="broker-a")
        run, target = CliRunner().invoke, ("-n", namesrv.address)
        for group in ("G1", "G2"):
            for broker in (alive, dead):
                assert run(app, ["updateSubGroup", "-b", broker.address, "-g", group, *target]).exit_code == 0
        made = run(app, ["updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w", "1", *target])
        sent = run(app, ["sendMessage", "-t", "T", "-p", "x", "-b", "broker-b", "-i", "0", *target])
        assert (made.exit_code, sent.exit_code) == (0, 0), sent.stderr
        # The name servers forget a broker whose process has ended.
        dead.process.send_signal(signal.SIGSTOP)
        try:
            found = run(app, ["doctor", "--json", *target])
            told = run(app, ["why", "G1", "T", "-o", "broker-b:0:0", "--json", *target])
        finally:
            dead.process.kill()

    data, answer = checked_json("doctor", found.stdout), checked_json("why", told.stdout)
    assert [each["subject"] for each in data["findings"]] == ["broker broker-a"]
    assert "accepts connections" in data["findings"][0]["evidence"]
    assert data["unknown"] == ["2 groups: progress at broker broker-a, which does not answer"]
    assert answer["outcome"] == "noClient"
    assert answer["sentences"][0].startswith("Broker broker-a does not answer, so its queues are not known")


async def test_no_name_server_is_one_clear_line():
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "-n", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("mqadmin: no name server answers: ")
    assert json.dumps(done.stderr).count("\\n") == 1
