"""The producer against brokers of our own: delays, recall, order, compression, batches, faults."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketbroker.client import (
    BrokerResponseError,
    CompressionType,
    InvalidMessageError,
    Message,
    MessageType,
    Producer,
    PullConsumer,
    SendFailedError,
    SystemBusyError,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.support.producer_scenario import check_delay, run_producer_scenario


@pytest.fixture
async def producer(mq: RocketMQServer) -> AsyncIterator[Producer]:
    async with Producer("shop", mq.namesrv_addr, clock=mq.clock) as producer:
        yield producer


async def test_messages_for_later_arrive_at_their_time(mq: RocketMQServer, producer: Producer):
    in_an_hour = mq.clock.time_ms() + 3_600_000
    results = [
        await producer.send(Message("Reminders", b"after 10 s", delay_time_ms=10_000)),
        await producer.send(Message("Reminders", b"after an hour", deliver_time_ms=in_an_hour)),
        await producer.send(Message("Reminders", b"level 5", delay_time_level=5)),
    ]
    assert {result.msg_type for result in results} == {MessageType.DELAY}
    mq.assert_messages("Reminders", [])
    mq.clock.advance(12)
    await mq.eventually(lambda: mq.assert_messages("Reminders", [b"after 10 s"]))
    mq.clock.advance(60)
    await mq.eventually(lambda: mq.assert_messages("Reminders", [b"after 10 s", b"level 5"]))
    mq.clock.advance(3600)
    await mq.eventually(lambda: mq.assert_messages("Reminders", [b"after 10 s", b"level 5", b"after an hour"]))


async def test_a_recalled_message_never_arrives():
    async with (
        RocketMQServer({"recallMessageEnable": "true"}) as mq,
        Producer("shop", mq.namesrv_addr, clock=mq.clock) as producer,
    ):
        recalled = await producer.send(Message("Reminders", b"recalled", delay_time_ms=60_000))
        await producer.send(Message("Reminders", b"kept", delay_time_ms=60_000))
        assert recalled.recall_handle
        assert await producer.recall("Reminders", recalled.recall_handle) == recalled.msg_id
        mq.clock.advance(70)
        await mq.eventually(lambda: mq.assert_messages("Reminders", [b"kept"]))
        with pytest.raises(BrokerResponseError):
            await producer.recall("Reminders", recalled.recall_handle)


async def test_a_sharding_key_keeps_the_order(mq: RocketMQServer, producer: Producer):
    for number in range(20):
        await producer.send(Message("Orders", b"%d" % number, sharding_key="order-7"))
    stored = mq.messages("Orders")
    assert [message.queue_offset for message in stored] == list(range(20))
    assert len({message.queue_id for message in stored}) == 1


@pytest.mark.parametrize("kind", CompressionType)
async def test_a_compressed_body_arrives_whole(mq: RocketMQServer, kind: CompressionType):
    body = b"order " * 10_000
    async with Producer("shop", mq.namesrv_addr, compress_type=kind) as producer:
        sent = await producer.send(Message("Orders", body))
    async with PullConsumer("billing", mq.namesrv_addr) as consumer:
        (message,) = (await consumer.pull(sent.message_queue, sent.queue_offset)).messages
    assert message.body == body
    assert message.body_length < 2000


async def test_a_priority_chooses_the_queue(mq: RocketMQServer, producer: Producer):
    results = [await producer.send(Message("Urgent", b"body", priority=priority)) for priority in (0, 3, 8)]
    assert [each.message_queue.queue_id for each in results] == [0, 3, 3]
    assert sorted((each.queue_id, each.priority) for each in mq.messages("Urgent")) == [(0, 0), (3, 3), (3, 8)]
    with pytest.raises(InvalidMessageError, match="messages with priorities cannot be sent as a batch"):
        await producer.send_batch([Message("Urgent", b"x", priority=1)])


async def test_a_batch_of_any_size_is_stored_in_order(mq: RocketMQServer, producer: Producer):
    await producer.send(Message("Orders", b"first"))
    (queue, *_) = await producer.fetch_publish_queues("Orders")
    bodies = [b"%04d" % number * 30_000 for number in range(100)]
    results = await producer.send_batch([Message("Orders", body) for body in bodies], queue, timeout_s=30)
    assert len(results) > 1
    assert [message.body for message in mq.messages("Orders") if message.body != b"first"] == bodies


async def test_a_busy_broker_is_tried_again(mq: RocketMQServer, producer: Producer):
    await producer.send(Message("Orders", b"1"))
    mq.faults.answer(ResponseCode.SYSTEM_BUSY, times=2)
    await producer.send(Message("Orders", b"2"))
    mq.faults.answer(ResponseCode.SYSTEM_BUSY, times=None)
    with pytest.raises(SendFailedError, match="sent 3 times") as failed:
        await producer.send(Message("Orders", b"3"))
    assert [type(cause) for cause in failed.value.causes] == [SystemBusyError] * 3
    mq.assert_messages("Orders", [b"1", b"2"])


async def test_a_send_goes_to_the_other_broker_when_one_fails():
    async with (
        RocketMQServer(brokers=2) as mq,
        Producer("shop", mq.namesrv_addr, send_latency_enable=True) as producer,
    ):
        for number in range(8):
            await producer.send(Message("Orders", b"%d" % number))
        assert len({message.store_host for message in mq.messages("Orders")}) == 2
        mq.faults.answer(ResponseCode.SYSTEM_BUSY, times=None, broker="broker-b")
        results = [await producer.send(Message("Orders", b"x")) for _ in range(8)]
        assert {result.message_queue.broker_name for result in results} == {"broker-a"}


async def test_many_sends_in_flight_stay_within_the_bounds(mq: RocketMQServer):
    async with Producer(
        "shop", mq.namesrv_addr, back_pressure_sends=4, back_pressure_bytes=2000, send_timeout_s=60
    ) as producer:
        await asyncio.gather(*(producer.send(Message("Orders", b"x" * 600)) for _ in range(200)))
    assert len(mq.messages("Orders")) == 200


@pytest.mark.long
async def test_the_scenario_that_apaches_broker_runs_as_well(mq: RocketMQServer):
    await run_producer_scenario(mq.namesrv_addr)
    await check_delay(mq.namesrv_addr)
