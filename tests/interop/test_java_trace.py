"""Apache's mqadmin reads the traces that our client leaves."""

import asyncio

import pytest

from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.testing import RocketMQServer
from tests.support.java import Java


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_apaches_mqadmin_shows_our_traces(java: Java):
    async with RocketMQServer() as mq:
        config = ClientConfig(mq.namesrv_addr, enable_trace=True)
        async with Producer("orders", config) as producer, PushConsumer("billing", config) as consumer:
            await consumer.subscribe("T")
            sent = await producer.send(Message("T", b"body", tags="a", keys="k"))
            async for _ in consumer:
                break
        done = await asyncio.to_thread(
            java.mqadmin, "queryMsgTraceById", "-i", sent.msg_id, "-n", mq.namesrv_addr, namesrv=mq.namesrv_addr
        )
    assert "Pub" in done.stdout, done.stdout + done.stderr
    assert "orders" in done.stdout
    assert "Sub" in done.stdout
    assert "billing" in done.stdout
