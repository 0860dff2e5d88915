"""mqadmin why at a running server: each outcome of a message in a group."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.client import (
    LocalFileOffsetStore,
    LocalTransactionState,
    Message,
    MessageSelector,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionProducer,
)
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
from tests.support.waiting import until

# Checks of half messages come soon once the clock has moved, instead of every 30 s.
SETTINGS = {"enablePropertyFilter": "true", "transactionCheckInterval": "1000"}


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    async with asyncio.timeout(60), RocketMQServer(SETTINGS) as server:
        yield server


@pytest.fixture
async def producer(mq: RocketMQServer) -> AsyncIterator[Producer]:
    async with Producer("PG", mq.namesrv_addr) as started:
        yield started


async def why(mq: RocketMQServer, *args: str, topic: str = "T") -> dict[str, Any]:
    command = ["why", "CG", topic, "-n", mq.namesrv_addr, *args]
    done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--json"])
    # stderr may have warnings of the test's own consumers, which run in this process.
    assert done.exit_code == 0, done.stderr
    data: dict[str, Any] = checked_json("why", done.stdout)
    assert data["sentences"]
    assert data["advice"]
    return data


async def becomes(mq: RocketMQServer, outcome: str, *args: str) -> dict[str, Any]:
    """Return the answer once it has this outcome, which comes soon after what caused it."""
    async with asyncio.timeout(30):
        while True:
            data = await why(mq, *args)
            if data["outcome"] == outcome:
                return data


def text(data: dict[str, Any]) -> str:
    return " ".join(data["sentences"])


async def sent(producer: Producer, tags: str = "a") -> SendResult:
    return await producer.send(Message("T", b"x", tags=tags, keys="k1"))


async def accept(_message: ReceivedMessage) -> None:
    await asyncio.sleep(0)


async def refuse(_message: ReceivedMessage) -> None:
    await asyncio.sleep(0)
    raise ValueError("not today")


async def test_a_topic_and_a_message_that_do_not_exist(mq: RocketMQServer, producer: Producer):
    assert (await why(mq, topic="Nothing"))["outcome"] == "noTopic"
    await sent(producer)
    for option in (("--key", "k2"), ("--id", "nothing"), ("--offset", "0:99")):
        assert (await why(mq, *option))["outcome"] == "notFound", option


async def test_a_consumed_message_and_one_for_which_no_client_is_there(mq: RocketMQServer, producer: Producer):
    first = await sent(producer)
    assert (await why(mq, "--id", first.msg_id))["outcome"] == "noGroup"
    async with PushConsumer("CG", mq.namesrv_addr, handler=accept, persist_interval_s=0.05) as consumer:
        await consumer.subscribe("T")
        data = await becomes(mq, "consumed", "--key", "k1")
        assert (data["msgId"], data["queueOffset"]) == (first.msg_id, 0)
        assert "'*' (TAG), which selects the message (tag a)" in text(data)
        assert "Owner: client " in text(data)
        assert (await why(mq))["outcome"] == "caughtUp"
    second = await sent(producer)
    data = await becomes(mq, "noClient", "--id", second.msg_id)
    assert data["advice"] == "start a consumer of group CG that subscribes to T"
    assert (await why(mq))["msgId"] == second.msg_id


async def test_filters_by_tag_and_by_sql(mq: RocketMQServer, producer: Producer):
    result = await sent(producer, "other")
    queue = f"{result.message_queue.queue_id}:{result.queue_offset}"
    async with PushConsumer("CG", mq.namesrv_addr, handler=accept) as consumer:
        await consumer.subscribe("T", "a || b")
        assert "does not select the message (tag other)" in text(await becomes(mq, "filtered", "--offset", queue))
        await consumer.subscribe("T", MessageSelector.by_sql("TAGS = 'a'"))
        data = await becomes(mq, "filtered", "--id", result.msg_id)
        while "(SQL92)" not in text(data):
            data = await becomes(mq, "filtered", "--id", result.msg_id)


async def test_a_message_that_waits_for_a_handler(mq: RocketMQServer, producer: Producer):
    release = asyncio.Event()
    begun: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message)
        await release.wait()

    async with PushConsumer("CG", mq.namesrv_addr, handler=handle) as consumer:
        result = await sent(producer)
        await consumer.subscribe("T")
        await until(lambda: bool(begun))
        data = await becomes(mq, "waiting", "--id", result.msg_id)
        assert "holds it: 1 message of the queue fetched and not finished" in text(data)
        release.set()


async def test_retries_and_the_dead_letter_queue(mq: RocketMQServer, producer: Producer):
    result = await sent(producer)
    async with PushConsumer("CG", mq.namesrv_addr, handler=refuse, max_reconsume_times=1) as consumer:
        await consumer.subscribe("T")
        assert "retry 1 of at most 16 waits for its delay since" in text(
            await becomes(mq, "retrying", "--id", result.msg_id)
        )
        mq.clock.advance(60)
        data = await becomes(mq, "deadLetter", "--id", result.msg_id)
        assert "%DLQ%CG" in text(data)
        assert data["advice"].endswith(f"mqadmin resendDlq CG -n {mq.namesrv_addr}")


async def test_a_retry_that_succeeds(mq: RocketMQServer, producer: Producer):
    async def refuse_once(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await refuse(message)

    result = await sent(producer)
    async with PushConsumer("CG", mq.namesrv_addr, handler=refuse_once, persist_interval_s=0.05) as consumer:
        await consumer.subscribe("T")
        await becomes(mq, "retrying", "--id", result.msg_id)
        mq.clock.advance(60)
        assert "at attempt 2" in text(await becomes(mq, "consumed", "--id", result.msg_id))


async def test_clients_that_subscribe_differently(mq: RocketMQServer, producer: Producer):
    result = await sent(producer)
    async with (
        PushConsumer("CG", mq.namesrv_addr, handler=accept) as one,
        PushConsumer("CG", f"{mq.namesrv_addr};127.0.0.1:1", handler=accept) as two,
    ):
        await one.subscribe("T", "a")
        await two.subscribe("T", "b")
        data = await becomes(mq, "conflict", "--id", result.msg_id)
        assert "has TAG a" in text(data)
        assert "has TAG b" in text(data)


async def test_a_delayed_message_and_an_open_and_a_rolled_back_half_message(mq: RocketMQServer, producer: Producer):
    await sent(producer)
    level = await producer.send(Message("T", b"x", delay_time_level=18, keys="level"))
    timer = await producer.send(Message("T", b"x", deliver_time_ms=mq.clock.time_ms() + 60_000))
    for each in (level, timer):
        data = await becomes(mq, "delayed", "--id", each.msg_id)
        assert "due at 20" in text(data)
    assert (await why(mq, "--key", "level"))["outcome"] == "delayed"
    unknown, rollback = LocalTransactionState.UNKNOWN, LocalTransactionState.ROLLBACK_MESSAGE
    async with TransactionProducer("TG", mq.namesrv_addr, check=lambda _message: rollback, clock=mq.clock) as half:
        opened = await half.send_in_transaction(Message("T", b"x"), lambda _message: unknown)
        assert "producer group TG" in text(await becomes(mq, "halfOpen", "--id", opened.msg_id))
        # Slowly: a producer without a heartbeat for two minutes is not asked.
        for _ in range(10):
            mq.clock.advance(10)
            data = await why(mq, "--id", opened.msg_id)
            if data["outcome"] == "rolledBack":
                break
            # The progress of checks is kept once it is on disk.
            await asyncio.to_thread(mq.flush)
        assert data["outcome"] == "rolledBack"


async def test_the_id_of_another_topic(mq: RocketMQServer, producer: Producer):
    await sent(producer)
    other = await producer.send(Message("Dup", b"x"))
    data = await why(mq, "--id", other.offset_msg_id)
    assert (data["outcome"], "is of topic Dup, not of T" in text(data)) == ("otherTopic", True)


async def test_a_group_that_broadcasts(mq: RocketMQServer, producer: Producer, tmp_path: Path):
    offsets = LocalFileOffsetStore(tmp_path / "offsets.json")
    result = await sent(producer)
    async with PushConsumer(
        "CG", mq.namesrv_addr, handler=accept, message_model=MessageModel.BROADCASTING, offset_store=offsets
    ) as consumer:
        await consumer.subscribe("T")
        await becomes(mq, "broadcast", "--id", result.msg_id)


async def test_a_suspended_group_and_a_forbidden_topic(mq: RocketMQServer, producer: Producer):
    result = await sent(producer)
    async with AdminClient(mq.namesrv_addr) as admin:
        suspended = SubscriptionGroupConfig("CG", consume_enable=False, retry_queue_nums=4, retry_max_times=3)
        await admin.create_and_update_subscription_group_config(mq.broker_addr, suspended)
        data = await why(mq, "--id", result.msg_id)
        assert data["outcome"] == "suspended"
        # The advice is a command that works and changes nothing else.
        done = await asyncio.to_thread(CliRunner().invoke, app, shlex.split(data["advice"])[1:])
        assert (done.exit_code, done.stderr) == (0, "")
        resumed = await admin.examine_subscription_group_config(mq.broker_addr, "CG")
        assert resumed == msgspec.structs.replace(suspended, consume_enable=True)
        await admin.create_and_update_subscription_group_config(mq.broker_addr, SubscriptionGroupConfig("CG"))
        await admin.update_and_get_group_read_forbidden(mq.broker_addr, "CG", "T", readable=False)
        assert (await why(mq, "--id", result.msg_id))["outcome"] == "forbidden"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--offset", "x"), "'x' is not QUEUE:OFFSET"),
        (("--offset", "77:1"), "queue 77 does not exist; the topic has broker-a:0"),
        (("--key", "a b"), "'a b' has blanks, at which brokers split keys"),
        (("--key", ""), "is empty"),
        (("--key", "a", "--id", "b"), "give one of --key, --id and --offset"),
    ],
)
async def test_wrong_usage_is_explained(mq: RocketMQServer, producer: Producer, options: tuple[str, ...], message: str):
    await sent(producer)
    done = await asyncio.to_thread(CliRunner().invoke, app, ["why", "CG", "T", "-n", mq.namesrv_addr, *options])
    assert (done.exit_code, message in " ".join(done.stderr.split())) == (2, True), done.stderr
