"""Requests with replies, against brokers of our own."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketbroker.client import (
    AdminClient,
    BrokerResponseError,
    InvalidMessageError,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
)
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.testing import RocketMQServer


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    async with RocketMQServer(brokers=2) as server:
        yield server


async def make_topic(mq: RocketMQServer) -> None:
    async with AdminClient(mq.namesrv_addr) as admin:
        for address in (await admin.fetch_master_addresses("DefaultCluster")).values():
            await admin.create_and_update_topic_config(address, TopicConfig("Questions", 4, 4))


async def test_each_question_gets_its_reply(mq: RocketMQServer):
    await make_topic(mq)
    async with Producer("asking", mq.namesrv_addr) as asking, Producer("answering", mq.namesrv_addr) as answering:

        async def answer(message: ReceivedMessage) -> None:
            await answering.reply(message, message.body.upper() * 2000)

        async with PushConsumer("answers", mq.namesrv_addr, handler=answer) as consumer:
            await consumer.subscribe("Questions")
            questions = [b"question %d" % number for number in range(10)]
            replies = await asyncio.gather(
                *(asking.request(Message("Questions", body), timeout_s=20) for body in questions)
            )
    assert [reply.body for reply in replies] == [body.upper() * 2000 for body in questions]


async def test_no_reply_is_an_error_that_says_so(mq: RocketMQServer):
    await make_topic(mq)
    async with Producer("asking", mq.namesrv_addr) as asking:
        await asking.send(Message("Questions", b"no question"))
        with pytest.raises(RequestTimeoutError, match=r"no reply to .* within 0.7 s, topic Questions"):
            await asking.request(Message("Questions", b"?"), timeout_s=0.7)


async def test_a_message_that_asks_nothing_cannot_be_replied_to(mq: RocketMQServer):
    async with Producer("asking", mq.namesrv_addr) as producer:
        await producer.send(Message("Questions", b"no question"))
        with pytest.raises(InvalidMessageError, match="asks for no reply"):
            await producer.reply(mq.messages("Questions")[0], b"!")


async def test_a_reply_to_a_client_that_is_gone_is_an_error(mq: RocketMQServer):
    await make_topic(mq)
    async with Producer("asking", mq.namesrv_addr) as asking:
        await asking.fetch_publish_queues("Questions")
        with pytest.raises(RequestTimeoutError):
            await asking.request(Message("Questions", b"?"), timeout_s=0.7)
    async with Producer("answering", mq.namesrv_addr, retry_times_when_send_failed=0) as answering:
        with pytest.raises(Exception, match="not found") as failed:
            await answering.reply(mq.messages("Questions")[0], b"!")
    assert isinstance(failed.value.__cause__ or failed.value, BrokerResponseError)
