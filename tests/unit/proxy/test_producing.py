"""Sends, ends of transactions and recalls: at a broker's processors, and with brokers that answer something else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_id import RecallMessageHandle, decode_recall_handle
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingTimeoutError
from rocketbroker.proxy.message_conversion import to_timestamp
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    EndTransactionRequest,
    Message,
    MessageType,
    RecallMessageRequest,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    TransactionResolution,
)
from rocketbroker.proxy.messaging_service import MessagingService
from tests.support.local_broker import ControlledBroker, served_broker
from tests.support.proxy_brokers import ENDPOINTS, FakeBrokers
from tests.support.proxy_calls import CONTEXT, message, refusal
from tests.support.stores import read_queue
from tests.support.waiting import until

Served = tuple[ControlledBroker, MessagingService]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_broker(tmp_path, recallMessageEnable="true") as (broker, service):
        broker.add_topic("Orders")
        broker.add_topic("Steps", "FIFO")
        broker.add_topic("Later", "DELAY")
        broker.add_topic("Paid", "TRANSACTION", queues=1)
        broker.add_topic("All", "MIXED")
        yield broker, service


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers(answer=response(header=SendMessageResponseHeader("7F00000100002A9F0000000000000040", 0, 5)))
    brokers.add_topic("Orders")
    brokers.add_topic("Paid", attributes={"message.type": "TRANSACTION"})
    return brokers


@pytest.fixture
def service(brokers: FakeBrokers) -> MessagingService:
    return MessagingService(brokers, ENDPOINTS)


def send(service: MessagingService, *messages: Message) -> "asyncio.Future[SendMessageResponse]":
    return asyncio.ensure_future(service.send_message(SendMessageRequest(messages=messages), CONTEXT))


async def sent(service: MessagingService, one: Message) -> SendResultEntry:
    reply = await send(service, one)
    assert reply.status.code == Code.OK
    return reply.entries[0]


def bodies(broker: ControlledBroker, topic: str) -> list[bytes]:
    return [each.body for queue in range(4) for each in read_queue(broker.controller.store, topic, queue)]


# -- sends


async def test_a_message_is_stored_with_its_id(served: Served):
    broker, service = served
    one = message(b"one", tag="a", keys=["k1", "k2"])
    one.user_properties["color"] = "blue"
    entry = await sent(service, one)
    await until(lambda: bodies(broker, "Orders"))

    [record] = [each for queue in range(4) for each in read_queue(broker.controller.store, "Orders", queue)]
    message_id = one.system_properties.message_id
    assert (entry.message_id, entry.transaction_id, entry.offset) == (message_id, message_id, 0)
    assert (record.body, record.uniq_key, record.tags, record.keys) == (b"one", message_id, "a", ["k1", "k2"])
    assert (record.get_property("color"), record.get_property("PGROUP")) == ("blue", "Orders")


async def test_messages_of_a_request_are_stored_together(served: Served):
    broker, service = served
    reply = await send(service, *(message(b"%d" % number) for number in range(3)))
    await until(lambda: bodies(broker, "Orders"))

    assert bodies(broker, "Orders") == [b"0", b"1", b"2"]
    assert [entry.offset for entry in reply.entries] == [0, 1, 2]
    assert {entry.status.code for entry in reply.entries} == {Code.OK}


async def test_messages_of_a_group_stay_in_order(served: Served):
    broker, service = served
    for number in range(5):
        await sent(service, message(b"%d" % number, "Steps", message_group="g", message_type=MessageType.FIFO))
    await until(lambda: len(bodies(broker, "Steps")) == 5)

    assert bodies(broker, "Steps") == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    ("topic", "system", "actual"),
    [
        ("Orders", {"message_group": "g"}, "FIFO"),
        ("Orders", {"message_type": MessageType.TRANSACTION}, "TRANSACTION"),
        ("Orders", {"delivery_timestamp": to_timestamp(1)}, "DELAY"),
        ("Steps", {"message_type": MessageType.FIFO}, "NORMAL"),
        ("Later", {}, "NORMAL"),
    ],
)
async def test_a_topic_takes_messages_of_its_type(served: Served, topic: str, system: dict[str, Any], actual: str):
    error = await refusal(send(served[1], message(topic=topic, **system)))

    assert error.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert f"but actual type is {actual}" in error.message
    assert f"mqadmin updateTopic -t {topic} -a +message.type={actual}" in error.message
    assert (await sent(served[1], message(topic="All", **system))).status.code == Code.OK


async def test_types_are_checked_unless_it_is_turned_off(brokers: FakeBrokers):
    service = MessagingService(brokers, ENDPOINTS, config=ProxyConfig(enable_topic_message_type_check=False))
    reply = await send(service, message(topic="Paid"))

    assert reply.status.code == Code.OK


async def test_a_send_makes_no_topic(served: Served):
    with pytest.raises(BrokerResponseError) as raised:
        await send(served[1], message(topic="Unknown"))

    assert raised.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("messages", "code", "text"),
    [
        ([], Code.MESSAGE_CORRUPTED, "no message to send"),
        ([message(), message(topic="All")], Code.MESSAGE_CORRUPTED, "topic in message is not same"),
        ([message(topic="no blank")], Code.ILLEGAL_TOPIC, "illegal characters"),
        ([message(), message(b"")], Code.MESSAGE_BODY_EMPTY, "empty"),
        (
            [message(topic="All"), message(topic="All", delivery_timestamp=to_timestamp(1))],
            Code.BAD_REQUEST,
            "type DELAY cannot be sent together",
        ),
        (
            [message(topic="All"), message(topic="All", message_type=MessageType.TRANSACTION)],
            Code.BAD_REQUEST,
            "different body encodings or types",
        ),
        (
            [message(topic="All", message_group="a"), message(topic="All", message_group="b")],
            Code.ILLEGAL_MESSAGE_GROUP,
            "different message groups",
        ),
    ],
)
async def test_a_wrong_request_stores_nothing(served: Served, messages: list[Message], code: Code, text: str):
    error = await refusal(send(served[1], *messages))

    assert error.code == code
    assert text in error.message
    assert bodies(served[0], "All") == []


async def test_a_batch_has_the_properties_of_each_message(service: MessagingService, brokers: FakeBrokers):
    await send(service, message(b"1", tag="a"), message(b"2", tag="b"))

    [(_, broker_name, command)] = brokers.requests
    assert (broker_name, command.code) == ("broker-a", RequestCode.SEND_BATCH_MESSAGE)
    assert isinstance(command.header, SendMessageRequestHeaderV2)
    assert command.header.batch
    parts = split_batch(command.body)
    assert parts.bodies == (b"1", b"2") or list(parts.bodies) == [b"1", b"2"]
    assert [b"TAGS\x01a" in each for each in parts.properties] == [True, False]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
    ],
)
async def test_a_message_that_is_less_safe_than_asked_has_an_entry(
    service: MessagingService, brokers: FakeBrokers, answer: ResponseCode, code: Code
):
    brokers.answer = response(answer, "too slow")
    reply = await send(service, message())

    assert (reply.status.code, reply.entries[0].status.code) == (code, code)
    assert reply.entries[0].status.message == "too slow"


async def test_a_brokers_refusal_is_that_of_the_send(service: MessagingService, brokers: FakeBrokers):
    brokers.answer = response(ResponseCode.SYSTEM_BUSY, "wait")
    with pytest.raises(BrokerResponseError, match="wait"):
        await send(service, message())


# -- transactions


def end(
    message_id: str, resolution: TransactionResolution = TransactionResolution.COMMIT, topic: str = "Paid"
) -> EndTransactionRequest:
    return EndTransactionRequest(
        topic=Resource(name=topic), message_id=message_id, transaction_id=message_id, resolution=resolution
    )


def half(body: bytes = b"half") -> Message:
    return message(body, "Paid", message_type=MessageType.TRANSACTION)


async def test_a_committed_message_is_delivered_and_a_rolled_back_one_not(served: Served):
    broker, service = served
    kept, dropped, undecided = [(await sent(service, half(b"%d" % n))).transaction_id for n in range(3)]
    unknown = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
    replies = [
        await service.end_transaction(each, CONTEXT)
        for each in (end(undecided, unknown), end(kept), end(dropped, TransactionResolution.ROLLBACK))
    ]
    await until(lambda: bodies(broker, "Paid"))

    assert {reply.status.code for reply in replies} == {Code.OK}
    assert bodies(broker, "Paid") == [b"0"]
    assert (await service.end_transaction(end(undecided), CONTEXT)).status.code == Code.OK
    await until(lambda: len(bodies(broker, "Paid")) == 2)


async def test_a_second_commit_is_refused(served: Served):
    entry = await sent(served[1], half())
    await served[1].end_transaction(end(entry.transaction_id), CONTEXT)
    error = await refusal(served[1].end_transaction(end(entry.transaction_id), CONTEXT))

    assert error.code == Code.INTERNAL_SERVER_ERROR
    assert "cannot found transaction data" in error.message


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (end(" "), Code.INVALID_TRANSACTION_ID),
        (end("0" * 32), Code.INTERNAL_SERVER_ERROR),
        (end("0" * 32, topic="no blank"), Code.ILLEGAL_TOPIC),
    ],
)
async def test_a_wrong_end_is_refused(served: Served, request_: EndTransactionRequest, code: Code):
    assert (await refusal(served[1].end_transaction(request_, CONTEXT))).code == code


async def test_a_transaction_of_another_topic_is_not_open(served: Served):
    entry = await sent(served[1], half())
    error = await refusal(served[1].end_transaction(end(entry.transaction_id, topic="All"), CONTEXT))

    assert error.code == Code.INTERNAL_SERVER_ERROR
    assert (await served[1].end_transaction(end(entry.transaction_id), CONTEXT)).status.code == Code.OK


async def test_an_end_that_fails_can_be_repeated(service: MessagingService, brokers: FakeBrokers):
    entry = await sent(service, half())
    brokers.answers[RequestCode.END_TRANSACTION] = RemotingTimeoutError("late")
    with pytest.raises(RemotingTimeoutError):
        await service.end_transaction(end(entry.transaction_id), CONTEXT)
    del brokers.answers[RequestCode.END_TRANSACTION]
    brokers.answer = response()

    assert (await service.end_transaction(end(entry.transaction_id), CONTEXT)).status.code == Code.OK


# -- delayed messages


async def test_a_delayed_message_is_recalled(served: Served):
    broker, service = served
    now = broker.controller._clock.time_ms()
    later = message(topic="Later", delivery_timestamp=to_timestamp(now + 60_000), message_type=MessageType.DELAY)
    entry = await sent(service, later)
    handle = decode_recall_handle(entry.recall_handle)
    reply = await service.recall_message(
        RecallMessageRequest(topic=Resource(name="Later"), recall_handle=entry.recall_handle), CONTEXT
    )

    assert (handle.topic, handle.message_id) == ("Later", entry.message_id)
    assert (reply.status.code, reply.message_id) == (Code.OK, entry.message_id)


@pytest.mark.parametrize(
    ("topic", "handle", "code", "text"),
    [
        ("Later", "nonsense!", Code.INTERNAL_SERVER_ERROR, "recall handle is invalid"),
        ("Orders", "", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "+message.type=DELAY"),
        ("no blank", "", Code.ILLEGAL_TOPIC, "illegal characters"),
    ],
)
async def test_a_wrong_recall_is_refused(served: Served, topic: str, handle: str, code: Code, text: str):
    recall = RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)
    error = await refusal(served[1].recall_message(recall, CONTEXT))

    assert error.code == code
    assert text in error.message


async def test_a_recall_of_another_topic_is_refused_by_the_broker(served: Served):
    handle = RecallMessageHandle("All", "broker-a", "1", "0" * 32).encode()
    recall = RecallMessageRequest(topic=Resource(name="Later"), recall_handle=handle)
    with pytest.raises(BrokerResponseError, match="topic not match"):
        await served[1].recall_message(recall, CONTEXT)
