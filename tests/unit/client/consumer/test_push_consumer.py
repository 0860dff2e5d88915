"""A push consumer's loops and handler, and messages consumed on request."""

import asyncio
import sys

import pytest

from rocketbroker.client.consumer.push_consumer import LeftMessages, MessageIterator, PushConsumer
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientStateError, HandlerError, InvalidMessageError, OptionError
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.remoting.bodies.client import CMResult, MessageModel
from rocketbroker.common.errors import BrokerResponseError
from tests.support.consumer_parts import QUEUE, message, process_queue


class Source:
    def __init__(self, number: int) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.left = LeftMessages()
        self._messages = [ReceivedMessage(message(at), QUEUE, "CG", self._settle) for at in range(number)]

    async def _settle(self, received: ReceivedMessage, outcome: Outcome, _delay_level: int) -> None:
        self.outcomes[received.queue_offset] = outcome

    async def _take(self) -> ReceivedMessage | None:
        return self._messages.pop(0) if self._messages else None

    def __aiter__(self) -> MessageIterator:
        return MessageIterator(self._take, self.left)


async def test_asking_for_the_next_message_acknowledges_the_one_before():
    source = Source(3)
    async for received in source:
        if received.queue_offset == 1:
            await received.dead_letter()
        assert received.queue_offset not in source.outcomes or received.queue_offset == 1
    assert source.outcomes == {0: Outcome.ACKNOWLEDGED, 1: Outcome.DEAD, 2: Outcome.ACKNOWLEDGED}


async def test_a_break_acknowledges_at_the_next_loop():
    source = Source(2)
    async for _ in source:
        break
    assert source.outcomes == {}
    async for _ in source:
        assert source.outcomes == {0: Outcome.ACKNOWLEDGED}


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
async def test_an_error_gives_the_message_back_when_the_consumer_is_closed(kind: type[BaseException]):
    source = Source(2)

    async def consume() -> None:
        try:
            async for _ in source:
                raise kind
        finally:
            await source.left.settle(sys.exception())

    with pytest.raises(kind):
        await consume()
    assert source.outcomes == ({0: Outcome.RETRIED} if kind is ValueError else {})


NOWHERE = "127.0.0.1:1"


def test_a_wrong_handler_is_refused_at_once():
    with pytest.raises(HandlerError, match="cannot be called with one message"):
        PushConsumer("CG", NOWHERE, handler=lambda: None)  # type: ignore[arg-type,misc]


def test_a_handler_runs_at_least_once_at_a_time():
    with pytest.raises(OptionError, match="PushConsumer: concurrency is 0; give a whole number from 1"):
        PushConsumer("CG", NOWHERE, concurrency=0)


@pytest.mark.parametrize("group", ["", "a b", "x" * 300])
def test_an_illegal_group_is_refused(group: str):
    with pytest.raises(InvalidMessageError):
        PushConsumer(group, NOWHERE)


async def test_a_group_has_one_consumer_on_a_client():
    async with ClientInstance(NOWHERE) as client, PushConsumer("CG", client=client):
        with pytest.raises(ClientStateError, match="group CG already has a consumer on client"):
            await PushConsumer("CG", client=client).start()


async def test_a_consumer_with_a_handler_is_not_iterated():
    async with PushConsumer("CG", NOWHERE, handler=print) as consumer:
        with pytest.raises(ClientStateError, match="has a handler; iterate a consumer without one"):
            aiter(consumer)


async def succeed(_message: ReceivedMessage) -> None: ...


async def postpone(received: ReceivedMessage) -> None:
    await received.retry_later()


async def fail(_message: ReceivedMessage) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("handler", "result", "remark"),
    [
        (succeed, CMResult.CR_SUCCESS, None),
        (postpone, CMResult.CR_LATER, None),
        (fail, CMResult.CR_THROW_EXCEPTION, "ValueError: broken"),
    ],
)
async def test_a_message_consumed_on_request_has_a_result(handler: object, result: CMResult, remark: str | None):
    consumer = PushConsumer("CG", NOWHERE, handler=handler)  # type: ignore[arg-type]
    answer = await consumer.consume_directly(message(3), "broker-a")
    assert (answer.consume_result, answer.remark, answer.order) == (result, remark, False)


async def test_a_message_consumed_on_request_has_names_without_the_namespace():
    seen: list[tuple[str, str]] = []

    async def handle(received: ReceivedMessage) -> None:
        seen.append((received.topic, received.group))

    consumer = PushConsumer("CG", ClientConfig(NOWHERE, namespace="NS"), handler=handle)
    await consumer.consume_directly(message(3, topic="NS%T"), "broker-a")
    assert seen == [("T", "CG")]


async def test_messages_show_their_group_without_hooks():
    consumer = PushConsumer("CG", ClientConfig(NOWHERE, namespace="NS"))
    held = process_queue([0])
    assert held.first is not None
    consumer._put(held, [held.first])
    received = await consumer._service.take()
    assert received is not None
    assert received.group == "CG"


async def test_a_loop_takes_no_message_on_request():
    with pytest.raises(BrokerResponseError, match="has no handler"):
        await PushConsumer("CG", NOWHERE).consume_directly(message(3), "broker-a")


class Broken:
    def consume_message(self, received: ReceivedMessage) -> None:
        received.observers += (lambda _outcome: print(1 / 0),)
        raise ValueError("broken hook")


async def test_the_errors_of_hooks_change_nothing(caplog: pytest.LogCaptureFixture):
    consumer = PushConsumer("CG", NOWHERE, hooks=[Broken()], message_model=MessageModel.BROADCASTING)
    held = process_queue([0])
    assert held.first is not None
    consumer._put(held, [held.first])
    received = await consumer._take()()
    assert received is not None
    await received.ack()
    assert received.group == "CG"
    assert "broken hook" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert len(held) == 0


def test_the_state_has_the_stacks_on_request():
    consumer = PushConsumer("CG", NOWHERE, orderly=True)
    info = consumer.running_info(with_stacks=True)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert [each.topic for each in info.subscription_set or ()] == ["%RETRY%CG"]
    assert info.jstack is not None
    assert "MainThread" in info.jstack
    assert consumer.running_info(with_stacks=False).jstack is None


async def test_a_worker_continues_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    taken: list[int] = []
    all_taken = asyncio.Event()

    async def handle(received: ReceivedMessage) -> None:
        taken.append(received.queue_offset)
        if len(taken) == 2:
            all_taken.set()

    async with PushConsumer("CG", NOWHERE, handler=handle, concurrency=1) as consumer:
        with monkeypatch.context() as broken:
            consume = consumer._listener.consume  # type: ignore[union-attr]

            async def fail_once(received: ReceivedMessage) -> Exception | None:
                broken.undo()
                await consume(received)
                raise TypeError("of the client itself")

            broken.setattr(consumer._listener, "consume", fail_once)
            held = process_queue([0, 1])
            consumer._put(held, list(held))
            async with asyncio.timeout(5):
                await all_taken.wait()
    assert taken == [0, 1]
    assert "consumer CG: the consumption of <ReceivedMessage" in caplog.text
