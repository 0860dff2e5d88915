"""Handlers: their signatures, their ends, and the threads of plain ones."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.message_listener import Handler, HandlerResult, MessageListener, check_handler
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from rocketbroker.client.errors import HandlerError
from rocketbroker.common.clock import SystemClock
from tests.support.consumer_parts import QUEUE, message


async def settle(_message: ReceivedMessage, _outcome: Outcome, _delay_level: int) -> None:
    return


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
