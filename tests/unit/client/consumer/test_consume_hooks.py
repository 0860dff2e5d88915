"""Hooks of consumers that give out records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.lite_pull_consumer import LitePullConsumer
from rocketbroker.client.consumer.pull_consumer import PullConsumer, StartFrom
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.testing import RocketMQServer


class Notes:
    """Notes the begin and the end of each consumption."""

    def __init__(self) -> None:
        self.begun: list[tuple[bytes, str, str, str]] = []
        self.ended: list[tuple[bytes, Outcome]] = []

    def consume_message(self, received: ReceivedMessage) -> None:
        self.begun.append((received.body, received.topic, received.group, received.queue.broker_name))
        received.observers += (lambda outcome: self.ended.append((received.body, outcome)),)


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    async with RocketMQServer() as mq:
        yield mq


@pytest.fixture
async def config(mq: RocketMQServer) -> ClientConfig:
    """A topic of one queue with three messages, in a namespace."""
    async with AdminClient(mq.namesrv_addr) as admin:
        await admin.create_and_update_topic_config(mq.broker_addr, TopicConfig("NS%T", 1, 1))
    config = ClientConfig(mq.namesrv_addr, namespace="NS")
    async with Producer("PG", config) as producer:
        for number in range(3):
            await producer.send(Message("T", b"%d" % number))
    return config


async def polled(consumer: LitePullConsumer, number: int) -> None:
    (message,) = await consumer.poll(30, max_messages=1)
    assert message.body == b"%d" % number


async def test_a_poll_ends_the_consumption_of_the_one_before(config: ClientConfig):
    notes = Notes()
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with LitePullConsumer("CG", config, hooks=[notes], consume_from_where=first) as consumer:
        await consumer.subscribe("T")
        await polled(consumer, 0)
        assert (notes.begun, notes.ended) == ([(b"0", "T", "CG", "broker-a")], [])
        await polled(consumer, 1)
        assert notes.ended == [(b"0", Outcome.ACKNOWLEDGED)]
    assert notes.ended == [(b"0", Outcome.ACKNOWLEDGED), (b"1", Outcome.ACKNOWLEDGED)]


async def test_messages_of_a_poll_come_again_after_an_error(config: ClientConfig):
    notes = Notes()
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = LitePullConsumer("CG", config, hooks=[notes], consume_from_where=first)

    async def fail() -> None:
        async with consumer:
            await consumer.subscribe("T")
            await polled(consumer, 0)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert notes.ended == [(b"0", Outcome.RETRIED)]


async def test_a_pull_is_consumed_at_once(config: ClientConfig):
    notes = Notes()
    async with PullConsumer("CG", config, hooks=[notes]) as consumer:
        (queue,) = await consumer.fetch_subscribe_queues("T")
        await consumer.pull(queue, 1)
    assert notes.begun == [(b"1", "T", "CG", "broker-a"), (b"2", "T", "CG", "broker-a")]
    assert notes.ended == [(b"1", Outcome.ACKNOWLEDGED), (b"2", Outcome.ACKNOWLEDGED)]


async def test_an_iteration_ends_each_consumption_with_the_next_message(config: ClientConfig):
    notes = Notes()
    async with (
        asyncio.timeout(30),
        PullConsumer("CG", config, hooks=[notes]) as consumer,
        aclosing(consumer.iterate("T", start_from=StartFrom.FIRST)) as messages,
    ):
        async for message in messages:
            assert notes.begun[-1] == (message.body, "T", "CG", "broker-a")
            if message.body == b"1":
                break
    assert notes.ended == [(b"0", Outcome.ACKNOWLEDGED), (b"1", Outcome.ACKNOWLEDGED)]


async def test_a_closed_consumer_ends_the_consumption_of_iterations_that_are_open(config: ClientConfig):
    notes = Notes()
    async with asyncio.timeout(60), PullConsumer("CG", config, hooks=[notes]) as consumer:
        messages = consumer.iterate("T", start_from=StartFrom.FIRST)
        assert (await anext(messages)).body == b"0"
    assert notes.ended == [(b"0", Outcome.RETRIED)]
    await messages.aclose()
    assert len(notes.ended) == 1


async def test_every_kind_of_consumer_leaves_traces(mq: RocketMQServer, config: ClientConfig):
    traced = ClientConfig(mq.namesrv_addr, namespace="NS", enable_trace=True)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with PullConsumer("pulls", traced) as consumer:
        (queue,) = await consumer.fetch_subscribe_queues("T")
        await consumer.pull(queue, 0, 1)
    async with LitePullConsumer("polls", traced, consume_from_where=first) as consumer:
        await consumer.subscribe("T")
        await polled(consumer, 0)
    kinds = []
    for message in mq.messages("RMQ_SYS_TRACE_TOPIC"):
        texts = message.body.decode().rstrip("\2").split("\2")
        kinds += [(text.split("\1")[0], group) for text in texts for group in ("pulls", "polls") if group in text]
    assert sorted(kinds) == [(kind, group) for kind in ("SubAfter", "SubBefore") for group in ("polls", "pulls")]
