"""A server for tests as its users see it: with the clients, retries, dead letters and time-outs of an application."""

import asyncio
import gc
import tempfile
import time
from pathlib import Path

import pytest

from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.testing import RocketMQServer
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.leaks import grown, held


async def test_the_example_of_a_new_group_and_a_new_topic():
    async with RocketMQServer() as mq:
        async with (
            Producer("orders", mq.namesrv_addr) as producer,
            PushConsumer("billing", mq.namesrv_addr) as consumer,
        ):
            await consumer.subscribe("Orders", "created || paid")
            await producer.send(Message("Orders", b"{}", tags="created", keys="order-7"))
            async for message in consumer:
                assert message.keys == "order-7"
                break
        mq.assert_lag("billing", "Orders", 0)


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def send_one(mq: RocketMQServer) -> None:
    async with Producer("orders", mq.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"order 7"))


@pytest.mark.long
@pytest.mark.timeout(300)  # it waits for the disk
@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.soak)])
async def test_many_servers_leave_nothing_behind(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with RocketMQServer() as mq:
        await send_one(mq)
    gc.collect()
    collector = gc.get_threshold(), gc.get_freeze_count()
    before = held()
    for _ in range(count):
        async with RocketMQServer() as mq:
            await send_one(mq)
    assert grown(before) == []
    assert entries(tmp_path) == []
    assert (gc.get_threshold(), gc.get_freeze_count()) == collector


async def test_retries_come_at_once_and_end_as_a_dead_letter(mq: RocketMQServer):
    seen: list[int] = []

    async def fail(message: ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        raise ValueError("no such order")

    async with (
        Producer("orders", mq.namesrv_addr) as producer,
        PushConsumer("billing", mq.namesrv_addr, handler=fail, max_reconsume_times=3) as consumer,
    ):
        await consumer.subscribe("Orders")
        await producer.send(Message("Orders", b"order 7"))

        def has_failed_often_enough() -> None:
            mq.clock.advance(3600)
            mq.assert_dead_letters("billing", [b"order 7"])

        began = time.monotonic()
        await mq.eventually(has_failed_often_enough, within_s=90)
        assert time.monotonic() - began < 90, "the delays are 10 s, 30 s and 60 s"
    assert seen == [0, 1, 2, 3]


async def test_a_consumer_goes_on_after_a_restart(mq: RocketMQServer):
    bodies: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    async with (
        Producer("orders", mq.namesrv_addr, retry_times_when_send_failed=50) as producer,
        PushConsumer("billing", mq.namesrv_addr, handler=note) as consumer,
    ):
        await consumer.subscribe("Orders")
        await producer.send(Message("Orders", b"1"))
        await mq.eventually(lambda: b"1" in bodies)
        mq.restart_broker()
        await producer.send(Message("Orders", b"2"), timeout_s=20)
        await mq.eventually(lambda: b"2" in bodies, within_s=90)


async def test_silent_clients_expire_with_the_clock():
    async with (
        RocketMQServer({"channelExpiredTimeout": "120000"}) as mq,
        Producer("orders", mq.namesrv_addr) as producer,
    ):
        await producer.send(Message("Orders", b"1"))
        await mq.eventually(lambda: is_connected(mq))
        mq.clock.advance(300)
        await mq.eventually(lambda: not is_connected(mq))
        await producer.send(Message("Orders", b"2"))


async def test_clients_live_by_the_clock_of_the_system(mq: RocketMQServer):
    """Sums as the manual says: a time to deliver at is one of the server's clock."""
    mq.clock.advance(3600)
    system_ms = time.time_ns() // 1_000_000
    async with Producer("orders", mq.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"past", deliver_time_ms=system_ms + 60_000))
        await producer.send(Message("Orders", b"ahead", deliver_time_ms=mq.clock.time_ms() + 60_000))
        await producer.send(Message("Orders", b"after", delay_time_ms=60_000))
        await mq.eventually(lambda: mq.assert_messages("Orders", [b"past"]))
        mq.clock.advance(61)
        await mq.eventually(
            lambda: sorted(each.body for each in mq.messages("Orders")) == [b"after", b"ahead", b"past"]
        )
    [past] = [each for each in mq.messages("Orders") if each.body == b"past"]
    assert abs(past.born_timestamp - system_ms) < 60_000
    assert past.store_timestamp - past.born_timestamp > 3_000_000


def is_connected(mq: RocketMQServer) -> bool:
    [broker] = mq._brokers()
    return broker.controller.producers.available_channel("orders", "orders") is not None


async def test_a_lock_of_a_queue_ends_with_the_clock(mq: RocketMQServer):
    async with Producer("orders", mq.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"order 7"))
    first, second = RemotingClient(), RemotingClient()
    try:
        for client, client_id in ((first, "first"), (second, "second")):
            heartbeat = HeartbeatData(client_id, [], [ConsumerData("billing")]).encode()
            await client.invoke(mq.broker_addr, request(RequestCode.HEART_BEAT, body=heartbeat), 5)
        assert await lock(mq, first, "first")
        assert not await lock(mq, second, "second")
        mq.clock.advance(61)
        assert await lock(mq, second, "second")
    finally:
        await first.stop()
        await second.stop()


async def lock(mq: RocketMQServer, client: RemotingClient, client_id: str) -> bool:
    queue = MessageQueue("Orders", "broker-a", 0)
    body = LockBatchRequestBody("billing", client_id, mq_set=[queue]).encode()
    answer = await client.invoke(mq.broker_addr, request(RequestCode.LOCK_BATCH_MQ, body=body), 5)
    return queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


async def test_clients_of_other_processes_use_the_address(mq: RocketMQServer):
    host, port = mq.namesrv_addr.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()
