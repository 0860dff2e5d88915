"""Threads of plain handlers: those that hang keep their thread, and nothing waits behind them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketbroker.client.consumer import handler_threads
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.flow_control import FlowControl, HeldBytes
from rocketbroker.client.consumer.handler_threads import HandlerThreads
from rocketbroker.client.consumer.message_listener import MessageListener
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from rocketbroker.client.push_consumer import PushConsumer
from rocketbroker.common.clock import SystemClock
from tests.support.consumer_parts import QUEUE, message, process_queue
from tests.support.waiting import until

NOWHERE = "127.0.0.1:1"


async def settle(_message: ReceivedMessage, _outcome: Outcome, _delay_level: int) -> None:
    return


class HangingHandler:
    """Plain handler that hangs on some messages until it is released."""

    def __init__(self, hangs: int) -> None:
        self._hangs = hangs
        self.released = threading.Event()
        self.called: list[int] = []

    def __call__(self, received: ReceivedMessage) -> None:
        self.called.append(received.queue_offset)
        if received.queue_offset < self._hangs:
            self.released.wait(30)


@asynccontextmanager
async def working(
    handler: HangingHandler, offsets: int, *, timeout_s: float, held: list[bool]
) -> AsyncIterator[tuple[PushConsumer, list[ReceivedMessage]]]:
    """Run the two workers of a consumer with messages; yield it and the messages that were given out."""
    consumer = PushConsumer("CG", NOWHERE, handler=handler, concurrency=2, consume_timeout_s=timeout_s)
    listener = MessageListener(handler, 2, timeout_s, consumer._stats, SystemClock(), hold_pulls=held.append)
    taken: list[ReceivedMessage] = []
    take = consumer._service.take

    async def noted() -> ReceivedMessage | None:
        received = await take()
        if received is not None:
            received._settle = settle
            taken.append(received)
        return received

    consumer._take = lambda: noted  # type: ignore[method-assign]
    queue = process_queue(range(offsets))
    consumer._put(queue, list(queue._held.values()))
    workers = [asyncio.create_task(consumer._work(listener)) for _ in range(2)]
    try:
        yield consumer, taken
    finally:
        handler.released.set()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        listener.stop()


async def test_messages_do_not_expire_behind_handlers_that_hang(caplog: pytest.LogCaptureFixture):
    handler, held = HangingHandler(hangs=2), []  # type: tuple[HangingHandler, list[bool]]
    async with working(handler, 6, timeout_s=0.05, held=held) as (_, taken):
        await until(lambda: len(taken) == 2 and all(each.outcome for each in taken))
        await asyncio.sleep(0.15)  # three times as long as a handler may take
        assert handler.called == [0, 1]
        assert [each.outcome for each in taken] == [Outcome.RETRIED] * 2
        assert held == [True]
        assert "2 of 2 threads still run handlers that exceeded consumeTimeout" in caplog.text
        handler.released.set()
        await until(lambda: len(taken) == 6 and taken[-1].outcome)
        assert held == [True, False]
    assert {each.queue_offset: each.outcome for each in taken[2:]} == dict.fromkeys(range(2, 6), Outcome.ACKNOWLEDGED)


async def test_one_handler_that_hangs_leaves_the_other_threads_to_work():
    handler, held = HangingHandler(hangs=1), []  # type: tuple[HangingHandler, list[bool]]
    async with working(handler, 5, timeout_s=0.05, held=held) as (_, taken):
        await until(lambda: sum(each.outcome is not None for each in taken) == 5)
    assert [each.outcome for each in taken if each.queue_offset] == [Outcome.ACKNOWLEDGED] * 4
    assert held == []


async def test_the_hint_about_overdue_handlers_is_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handler_threads, "_REMIND_S", 0.02)
    handler, held = HangingHandler(hangs=1), []  # type: tuple[HangingHandler, list[bool]]
    async with working(handler, 1, timeout_s=0.01, held=held):
        await until(lambda: caplog.text.count("1 of 2 threads still run") >= 2)


async def test_an_orderly_message_comes_again_only_after_its_handler_has_returned():
    handler, clock = HangingHandler(hangs=1), SystemClock()
    listener = MessageListener(handler, 2, 0.02, ConsumerStats(clock), clock, orderly=True)
    received = ReceivedMessage(message(0), QUEUE, "CG", settle)
    consuming = asyncio.create_task(listener.consume(received))
    await until(lambda: listener.threads is not None and listener.threads._overdue)
    assert [received.outcome] == [None]
    handler.released.set()
    assert isinstance(await consuming, TimeoutError)
    assert received.outcome is Outcome.RETRIED
    listener.stop()


async def test_a_thread_is_free_again_when_its_late_handler_returns():
    threads = HandlerThreads(1, lambda _hold: None)
    handler = HangingHandler(hangs=1)
    received = ReceivedMessage(message(0), QUEUE, "CG", settle)
    call = asyncio.create_task(threads.call(handler, received))
    await until(lambda: handler.called)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    ended = asyncio.create_task(threads.wait_ended(received))
    handler.released.set()
    await ended
    await threads.wait_free()
    threads.stop()


async def test_no_queue_pulls_while_pulls_are_held():
    held_bytes = HeldBytes(FlowControl())
    held = ProcessQueue(QUEUE, 0, 0.0, held_bytes)
    held_bytes.hold_pulls(True)
    pull = asyncio.create_task(held_bytes.wait_for_room(held))
    await asyncio.sleep(0)
    assert held_bytes._waiting
    held_bytes.hold_pulls(False)
    async with asyncio.timeout(5):
        await pull
