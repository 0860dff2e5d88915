"""Traces that producers and push consumers leave in the trace topic."""

import asyncio
from collections import Counter

import pytest

from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.message_sender import trace_dispatcher
from rocketbroker.client.producer.producer import Producer
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.client.trace import async_trace_dispatcher
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.trace_data import SubAfterTrace
from rocketbroker.common.clock import SystemClock
from rocketbroker.testing import RocketMQServer


def traces(mq: RocketMQServer) -> list[list[str]]:
    stored = mq.messages("RMQ_SYS_TRACE_TOPIC")
    texts = "".join(message.body.decode() for message in stored)
    return [text.split("\x01") for text in texts.split("\x02") if text]


async def commit(_message: Message | MessageExt) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE


async def test_sends_consumption_and_transactions_are_traced(mq: RocketMQServer):
    config = ClientConfig(mq.namesrv_addr, enable_trace=True, namespace="NS")
    async with Producer("orders", config) as producer, PushConsumer("billing", config) as consumer:
        await consumer.subscribe("T")
        sent = await producer.send(Message("T", b"body", tags="a", keys=("k1", "k2")))
        async with asyncio.timeout(60):
            async for message in consumer:
                assert message.topic == "T"
                break
    async with TransactionProducer("payments", config, check=commit) as payments:
        paid = await payments.send_in_transaction(Message("T", b"body"), commit)
    found = {each[0]: each for each in traces(mq)}
    pubs = [each for each in traces(mq) if each[0] == "Pub"]
    assert Counter(each[0] for each in traces(mq)) == {"Pub": 2, "SubBefore": 1, "SubAfter": 1, "EndTransaction": 1}
    assert pubs[0][3:9] == ["orders", "T", sent.msg_id, "a", "k1 k2", mq.broker_addr]
    assert (pubs[0][9], pubs[0][11:]) == ("4", ["0", sent.offset_msg_id, "true"])
    assert pubs[1][11] == "1"
    assert found["SubBefore"][3] == "billing"
    assert found["SubBefore"][5:] == [sent.msg_id, "0", "k1 k2"]
    assert found["SubAfter"][2] == sent.msg_id
    assert found["SubAfter"][4:7] == ["true", "k1 k2", "0"]
    assert found["EndTransaction"][5] == paid.msg_id
    assert found["EndTransaction"][11:] == ["COMMIT_MESSAGE", "false"]
    assert {key for each in mq.messages("RMQ_SYS_TRACE_TOPIC") for key in each.keys} >= {sent.msg_id, "k1", "k2"}


async def test_traces_that_cannot_be_sent_are_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(async_trace_dispatcher, "_MOST_WAITING", 2)
    async with ClientInstance(ClientConfig("127.0.0.1:1", enable_trace=True)) as client:
        dispatcher = trace_dispatcher(client, "G", SystemClock())
        assert dispatcher is not None
        for number in range(3):
            dispatcher.append(SubAfterTrace(str(number), "id", 1, True, "", 0, 1, "G"))
        await dispatcher.stop()
    assert "group G: 1 traces were dropped, since 2 wait" in caplog.text
    assert "group G: 2 traces were not sent: " in caplog.text
