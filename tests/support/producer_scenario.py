"""Transactions, requests with replies, order, compression and delays, on Apache's broker and on ours."""

import asyncio
import time
from contextlib import aclosing

from rocketbroker.client import (
    CompressionType,
    LocalTransactionState,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketbroker.codec.message.message_ext import MessageExt

LIMIT_S = 60
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE


async def run_producer_scenario(namesrv_addr: str) -> None:
    """Run each part but delays to the millisecond, which brokers know from 5.0 on."""
    async with asyncio.timeout(5 * LIMIT_S):
        await check_transactions(namesrv_addr)
        await check_request_and_reply(namesrv_addr)
        await check_order(namesrv_addr)
        await check_compression(namesrv_addr)


async def bodies_in(namesrv_addr: str, topic: str, number: int) -> list[MessageExt]:
    """Consume as many messages of a topic as there should be."""
    messages: list[MessageExt] = []
    async with (
        PullConsumer(f"CG_{topic}", namesrv_addr) as consumer,
        aclosing(consumer.iterate(topic)) as stream,
    ):
        async for message in stream:
            messages.append(message)
            if len(messages) == number:
                break
    return messages


async def check_transactions(namesrv_addr: str) -> None:
    """Send messages whose local transactions commit and roll back; only the former are there."""

    def check(message: MessageExt) -> LocalTransactionState:
        raise AssertionError(f"{message.body!r} was checked, though its outcome was sent")

    def execute(message: Message) -> LocalTransactionState:
        return COMMIT if int(message.body) % 2 else ROLLBACK

    async with TransactionProducer("PG_Transactions", namesrv_addr, check=check, send_timeout_s=LIMIT_S) as producer:
        for number in range(10):
            result = await producer.send_in_transaction(Message("Transactions", b"%d" % number, tags="t"), execute)
            assert result.local_transaction_state is (COMMIT if number % 2 else ROLLBACK)
        messages = await bodies_in(namesrv_addr, "Transactions", 5)
    assert sorted(message.body for message in messages) == [b"1", b"3", b"5", b"7", b"9"]
    assert {message.tags for message in messages} == {"t"}


async def check_request_and_reply(namesrv_addr: str) -> None:
    """Ask questions; each gets its own reply."""
    async with Producer("PG_Asking", namesrv_addr) as asking, Producer("PG_Replying", namesrv_addr) as replying:
        await asking.send(Message("Questions", b"first"), timeout_s=LIMIT_S)  # creates the topic

        async def answer(message: ReceivedMessage) -> None:
            if message.body != b"first":
                await replying.reply(message, message.body.upper(), timeout_s=LIMIT_S)

        async with PushConsumer("CG_Questions", namesrv_addr, handler=answer) as consumer:
            await consumer.subscribe("Questions")
            bodies = [b"question %d" % number for number in range(5)]
            replies = await asyncio.gather(
                *(asking.request(Message("Questions", body), timeout_s=LIMIT_S) for body in bodies)
            )
    assert [reply.body for reply in replies] == [body.upper() for body in bodies]


async def check_order(namesrv_addr: str) -> None:
    """Send by sharding key; the messages of one key are in one queue and in order."""
    async with Producer("PG_Order", namesrv_addr, send_timeout_s=LIMIT_S) as producer:
        await producer.send(Message("Ordered", b"first", sharding_key="k"))
        for number in range(20):
            await producer.send(Message("Ordered", b"%d" % number, sharding_key=f"key {number % 3}"))
    messages = await bodies_in(namesrv_addr, "Ordered", 21)
    for key in ("key 0", "key 1", "key 2"):
        of_key = [message for message in messages if message.properties.get("__SHARDINGKEY") == key]
        assert len({message.queue_id for message in of_key}) == 1
        assert [int(message.body) for message in of_key] == sorted(int(message.body) for message in of_key)


async def check_compression(namesrv_addr: str) -> None:
    """Send a large body by each compression, and a batch of many parts."""
    for kind in CompressionType:
        async with Producer("PG_Compression", namesrv_addr, compress_type=kind, send_timeout_s=LIMIT_S) as producer:
            await producer.send(Message("Compressed", kind.name.encode() * 5000))
    messages = await bodies_in(namesrv_addr, "Compressed", 3)
    assert {message.body for message in messages} == {kind.name.encode() * 5000 for kind in CompressionType}


async def check_delay(namesrv_addr: str) -> None:
    """Send a message for later to the millisecond (brokers from 5.0 on)."""
    async with Producer("PG_Delay", namesrv_addr, send_timeout_s=LIMIT_S) as producer:
        began = time.monotonic()
        result = await producer.send(Message("Delayed", b"later", delay_time_ms=2500))
        assert result.msg_type.name == "DELAY"
        (message,) = await bodies_in(namesrv_addr, "Delayed", 1)
    assert (message.body, time.monotonic() - began > 2) == (b"later", True)
