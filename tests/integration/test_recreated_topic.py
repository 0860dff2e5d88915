"""A topic that is deleted and made again while a consumer runs."""

import asyncio

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import AdminClient, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.client.consumer import pull_message_service
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.waiting import until


@pytest.mark.parametrize("orderly", [False, True])
async def test_every_message_of_the_new_topic_arrives(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, orderly: bool
):
    monkeypatch.setattr(pull_message_service, "_SUSPEND_TIMEOUT_S", 0.5)
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    server = DevServer(0, 0)
    await server.start()
    topic, queue = TopicConfig("Again", 1, 1), MessageQueue("Again", "broker-a", 0)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with asyncio.timeout(60), AdminClient(server.namesrv_addr) as admin, Producer("PG", server.namesrv_addr) as p:
        await admin.create_and_update_topic_config(server.broker_addr, topic)
        for number in range(20):
            await p.send(Message("Again", b"old %d" % number), queue)
        async with PushConsumer(
            "CG", server.namesrv_addr, handler=handle, orderly=orderly, consume_from_where=first
        ) as consumer:
            await consumer.subscribe("Again")
            await until(lambda: len(seen) == 20)
            await admin.delete_topic_in_broker([server.broker_addr], "Again")
            await admin.create_and_update_topic_config(server.broker_addr, topic)
            for number in range(10):
                await p.send(Message("Again", b"new %d" % number), queue)
            await until(lambda: b"new 9" in seen)
    assert set(seen[20:]) == {b"new %d" % number for number in range(10)}
    assert "its topic was made again; it is consumed from its beginning, 0" in caplog.text
    await server.stop()
