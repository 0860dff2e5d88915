"""Traces on their way to the trace topic: sizes of messages, the end, and messages that are not traced."""

import asyncio

import pytest

from rocketbroker.client.core.client_instance import Namespace
from rocketbroker.client.core.message import Message, MessageType, SendMessageContext, SendResult, SendStatus
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.trace import async_trace_dispatcher
from rocketbroker.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.trace_data import SubAfterTrace
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RemotingSendError
from tests.support.consumer_parts import consumption, message, process_queue

TRACES = "RMQ_SYS_TRACE_TOPIC"


class Sender:
    """Notes what is sent, once it may go on."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.began = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None

    async def send(self, message: Message) -> None:
        self.began.set()
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        self.sent.append(message)

    @property
    def keys(self) -> list[str]:
        return [key for each in self.sent for key in each.keys or ()]

    @property
    def traces(self) -> int:
        return sum(each.body.count(b"\x02") for each in self.sent)


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def dispatcher(sender: Sender) -> AsyncTraceDispatcher:
    return AsyncTraceDispatcher(sender.send, TRACES, Namespace(""), "G", SystemClock())


def trace(number: int, keys: str = "", msg_id: str = "") -> SubAfterTrace:
    return SubAfterTrace(str(number), msg_id or f"id-{number}", 1, True, keys, 0, 1, "G")


async def test_many_keys_are_spread_over_messages(dispatcher: AsyncTraceDispatcher, sender: Sender):
    for number in range(100):
        dispatcher.append(trace(number, f"{number}-" + "k" * 1000))
    await dispatcher.stop()
    assert (sender.traces, len(sender.keys)) == (100, 200)
    assert 4 <= len(sender.sent) <= 5


async def test_a_message_has_no_more_keys_than_brokers_take(dispatcher: AsyncTraceDispatcher, sender: Sender):
    for number in range(100):
        dispatcher.append(trace(number, f"key-{number}"))
    dispatcher.append(trace(100, " ".join(f"k{number}" for number in range(200))))
    await dispatcher.stop()
    assert sender.traces == 101
    assert [len(each.keys or ()) for each in sender.sent] == [128, 72, 128]


async def test_long_bodies_are_spread_over_messages(
    dispatcher: AsyncTraceDispatcher, sender: Sender, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(async_trace_dispatcher, "_MOST_BODY_BYTES", 300)
    for number in range(30):
        dispatcher.append(trace(number))
    await dispatcher.stop()
    assert sender.traces == 30
    assert max(len(each.body) for each in sender.sent) <= 300


async def test_keys_that_fit_into_no_message_are_left_out(dispatcher: AsyncTraceDispatcher, sender: Sender):
    dispatcher.append(trace(1, "k" * 31_000 + " small"))
    await dispatcher.stop()
    assert (sender.traces, sender.keys) == (1, ["id-1", "small"])


async def test_a_batch_is_found_by_its_first_id(dispatcher: AsyncTraceDispatcher, sender: Sender):
    dispatcher.append(trace(1, msg_id=",".join(f"{number:032}" for number in range(1000))))
    await dispatcher.stop()
    assert (sender.traces, sender.keys) == (1, ["0" * 32])


async def test_a_flush_under_way_ends_before_the_dispatcher(
    dispatcher: AsyncTraceDispatcher, sender: Sender, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(async_trace_dispatcher, "_INTERVAL_S", 0.001)
    dispatcher.append(trace(1))
    sender.goes_on.clear()
    dispatcher.start()
    await sender.began.wait()
    dispatcher.append(trace(2))
    stopping = asyncio.create_task(dispatcher.stop())
    await asyncio.sleep(0)
    sender.goes_on.set()
    await stopping
    assert sender.keys == ["id-1", "id-2"]


async def test_a_broker_that_hangs_holds_up_the_end_once(
    dispatcher: AsyncTraceDispatcher,
    sender: Sender,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(async_trace_dispatcher, "_STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(async_trace_dispatcher, "_INTERVAL_S", 0.001)
    sender.goes_on.clear()
    for number in range(500):
        dispatcher.append(trace(number))
    dispatcher.start()
    await sender.began.wait()
    async with asyncio.timeout(5):
        await dispatcher.stop()
    warning = "group G: 500 traces were not sent: no broker stored them within 0.05 s after the end"
    assert [record.getMessage() for record in caplog.records] == [warning]


async def test_a_failure_at_the_end_is_reported_once(
    dispatcher: AsyncTraceDispatcher, sender: Sender, caplog: pytest.LogCaptureFixture
):
    sender.error = RemotingSendError("gone")
    for number in range(500):
        dispatcher.append(trace(number))
    await dispatcher.stop()
    assert [record.getMessage() for record in caplog.records] == ["group G: 500 traces were not sent: gone"]


async def test_messages_of_the_trace_topic_are_not_traced(dispatcher: AsyncTraceDispatcher, sender: Sender):
    for topic in (TRACES, "T"):
        received: ReceivedMessage = consumption(message(0, topic=topic, MSG_REGION="r"), process_queue())
        dispatcher.consume_message(received)
        await received.ack()
        queue = MessageQueue(topic, "broker-a", 0)
        sent = Message(topic, b"body")
        context = SendMessageContext("PG", (sent,), "id", MessageType.NORMAL, queue, "127.0.0.1:1", 1)
        context.result = SendResult(SendStatus.SEND_OK, "id", "offset-id", queue, 0, region_id="r", trace_on=True)
        dispatcher.send_message_after(context)
        await dispatcher.stop()
        assert sender.traces == (0 if topic == TRACES else 3)
