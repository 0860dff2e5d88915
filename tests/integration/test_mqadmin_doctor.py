"""mqadmin doctor at running servers: silent while all is well, and a finding for each fault that is made."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
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


async def test_no_name_server_is_one_clear_line():
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "-n", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("mqadmin: no name server answers: ")
    assert json.dumps(done.stderr).count("\\n") == 1
