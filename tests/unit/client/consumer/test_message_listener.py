"""Handlers: their results, their threads, and their time limit."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rocketbroker.client.consumer import message_listener
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.message_listener import (
    ConsumeTimeout,
    Handler,
    HandlerResult,
    HandlerThreads,
    MessageListener,
    check_handler,
)
from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import HandlerError
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.common.clock import SystemClock
from tests.support.consumer_parts import QUEUE, message, process_queue
from tests.support.waiting import until


async def handle(timeout: ConsumeTimeout, seconds: float) -> str:
    """Wait some seconds as a handler, 0 for one turn of the loop; return how that ended."""
    task = asyncio.current_task()
    assert task is not None
    timeout.begin(task)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "expired" if timeout.end(task) and not task.cancelling() else "cancelled"
    return "expired late" if timeout.end(task) else "done"


async def test_each_task_has_its_own_deadline():
    timeout = ConsumeTimeout(0.2)
    results = [asyncio.create_task(handle(timeout, seconds)) for seconds in (60, 0)]
    assert await results[1] == "done"
    async with asyncio.timeout(5):
        later = asyncio.create_task(handle(timeout, 60))
        assert [await each for each in (results[0], later)] == ["expired", "expired"]
    timeout.stop()


async def test_a_task_that_took_its_time_is_timed_again():
    timeout = ConsumeTimeout(0.2)
    assert [await handle(timeout, seconds) for seconds in (60, 0, 60)] == ["expired", "done", "expired"]
    timeout.stop()


async def test_a_cancelled_task_did_not_expire():
    timeout = ConsumeTimeout(60)
    task = asyncio.create_task(handle(timeout, 60))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"
    timeout.stop()


async def test_a_stopped_timeout_cancels_nothing():
    timeout = ConsumeTimeout(0.01)
    task = asyncio.create_task(handle(timeout, 0.1))
    await asyncio.sleep(0)
    timeout.stop()
    assert await task == "done"


@pytest.mark.parametrize("late", [True, False])
async def test_a_handler_that_catches_the_cancellation_is_not_cancelled_twice(*, late: bool):
    timeout = ConsumeTimeout(0.01)
    task = asyncio.current_task()
    assert task is not None
    timeout.begin(task)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(60)
    await asyncio.sleep(0.05 if late else 0)
    assert timeout.end(task)
    assert not task.cancelling()
    timeout.stop()


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
    consumer._put(queue, list(queue))
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
    async with working(handler, 5, timeout_s=0.5, held=held) as (_, taken):
        await until(lambda: sum(each.outcome is not None for each in taken) == 5)
    assert [each.outcome for each in taken if each.queue_offset] == [Outcome.ACKNOWLEDGED] * 4
    assert held == []


async def test_the_hint_about_overdue_handlers_is_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(message_listener, "_REMIND_S", 0.02)
    handler, held = HangingHandler(hangs=1), []  # type: tuple[HangingHandler, list[bool]]
    async with working(handler, 1, timeout_s=0.01, held=held):
        await until(lambda: caplog.text.count("1 of 2 threads still run") >= 2)


async def test_an_orderly_message_comes_again_only_after_its_handler_has_returned():
    handler, clock = HangingHandler(hangs=1), SystemClock()
    listener = MessageListener(handler, 2, 0.02, ConsumerStats(clock), clock, orderly=True)
    received = ReceivedMessage(message(0), QUEUE, "CG", settle)
    consuming = asyncio.create_task(listener.consume(received))
    threads = listener.threads
    assert threads is not None
    await until(lambda: bool(threads.overdue))
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
    assert not pull.done()
    held_bytes.hold_pulls(False)
    async with asyncio.timeout(5):
        await pull


async def outcome_of(handler: Handler, timeout_s: float = 5.0) -> tuple[Outcome | None, Exception | None]:
    clock = SystemClock()
    listener = MessageListener(handler, 2, timeout_s, ConsumerStats(clock), clock)
    received = ReceivedMessage(message(0), QUEUE, "CG", settle)
    error = await listener.consume(received)
    listener.stop()
    return received.outcome, error


async def test_a_handler_that_ends_acknowledges():
    async def handle(_message: ReceivedMessage) -> None:
        await asyncio.sleep(0)

    assert await outcome_of(handle) == (Outcome.ACKNOWLEDGED, None)


async def test_a_handler_may_settle_by_itself():
    async def handle(received: ReceivedMessage) -> None:
        await received.dead_letter()

    assert await outcome_of(handle) == (Outcome.DEAD, None)


async def test_a_handler_that_raises_gives_back(caplog: pytest.LogCaptureFixture):
    async def handle(_message: ReceivedMessage) -> None:
        raise ValueError("broken")

    outcome, error = await outcome_of(handle)
    assert (outcome, str(error)) == (Outcome.RETRIED, "broken")
    assert "the handler failed" in caplog.text


async def test_a_handler_that_hangs_is_ended(caplog: pytest.LogCaptureFixture):
    async def handle(_message: ReceivedMessage) -> None:
        await asyncio.Event().wait()

    outcome, error = await outcome_of(handle, 0.01)
    assert outcome is Outcome.RETRIED
    assert isinstance(error, TimeoutError)
    assert "consumeTimeout (0.01 s)" in caplog.text


async def test_a_handler_whose_own_task_is_cancelled_gives_back(caplog: pytest.LogCaptureFixture):
    async def handle(_message: ReceivedMessage) -> None:
        own = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(own.cancel)
        await own

    outcome, error = await outcome_of(handle)
    assert outcome is Outcome.RETRIED
    assert isinstance(error, HandlerError)
    assert "awaited a task that was cancelled" in caplog.text


async def test_the_cancellation_of_the_worker_goes_through():
    started = asyncio.Event()

    async def handle(_message: ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    worker = asyncio.create_task(outcome_of(handle))
    await started.wait()
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker


async def test_a_plain_function_runs_in_a_thread():
    threads: list[str] = []

    def handle(_message: ReceivedMessage) -> None:
        threads.append(threading.current_thread().name)

    assert await outcome_of(handle) == (Outcome.ACKNOWLEDGED, None)
    assert threads[0].startswith("rocketbroker-handler")


async def test_an_object_may_be_a_handler():
    class Handles:
        async def __call__(self, received: ReceivedMessage) -> None:
            await received.ack()

    assert await outcome_of(Handles()) == (Outcome.ACKNOWLEDGED, None)


def no_argument() -> None: ...


def two_arguments(_first: object, _second: object) -> None: ...


def optional_second(_first: object, _second: object = None) -> None: ...


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (no_argument, r"the handler no_argument\(\) -> None cannot be called with one message"),
        (two_arguments, "missing a required argument: '_second'"),
        ("handle", "the handler is 'handle'; give a function of one message"),
        (None, "the handler is None"),
    ],
)
def test_a_wrong_handler_is_named(handler: object, text: str):
    with pytest.raises(HandlerError, match=text):
        check_handler(handler)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, Outcome.ACKNOWLEDGED),
        (True, Outcome.ACKNOWLEDGED),
        (False, Outcome.RETRIED),
        *((outcome, outcome) for outcome in Outcome),
    ],
)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_result_of_a_handler_is_its_outcome(result: HandlerResult, outcome: Outcome, *, in_thread: bool):
    async def handle(_message: ReceivedMessage) -> HandlerResult:
        return result

    assert await outcome_of((lambda _message: result) if in_thread else handle) == (outcome, None)


@pytest.mark.parametrize("result", [0, 1, "CONSUME_SUCCESS", "RECONSUME_LATER", [], object()])
async def test_a_result_without_a_meaning_gives_back(result: object, caplog: pytest.LogCaptureFixture):
    outcome, error = await outcome_of(lambda _message: result)  # type: ignore[arg-type, return-value]
    assert outcome is Outcome.RETRIED
    assert isinstance(error, HandlerError)
    told = f"it returned {result!r}; return None or True to acknowledge, False for a retry, or an Outcome"
    assert [(record.levelname, record.message.endswith(told)) for record in caplog.records] == [("ERROR", True)]


async def test_a_result_changes_no_outcome_that_the_handler_chose():
    async def handle(received: ReceivedMessage) -> bool:
        await received.dead_letter()
        return False

    assert await outcome_of(handle) == (Outcome.DEAD, None)


async def test_an_error_that_is_no_exception_gives_back():
    async def handle(_message: ReceivedMessage) -> None:
        pytest.fail("as an assertion of a test")

    outcome, error = await outcome_of(handle)
    assert outcome is Outcome.RETRIED
    assert "as an assertion of a test" in str(error)


@pytest.mark.parametrize("handler", [optional_second, print, lambda _message: None, [].append])
def test_a_handler_takes_one_message(handler: Callable[..., object]):
    check_handler(handler)
