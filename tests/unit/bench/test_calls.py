"""Broker and client make no more calls a message than they did: times depend on the machine, calls do not.

A change that needs more raises the bound here, and shows in docs/operations/performance.md what it costs.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest

import rocketbroker
from bench.send_path import QUEUES, SendPath, batch_frame, pull_frame, send_frame, send_path
from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from tests.support import client_path
from tests.support.client_path import answered_client

MESSAGES = 25
# Messages of a batch and of a pull, and batches of one read event.
EACH = 32
BATCHES = 7
SENDERS, ROUNDS = 64, 20
PULLS = 8
CONSUMED = PULLS * client_path.QUEUES * client_path.EACH
# Event loops differ in their calls, and the broker in this process is no part of the client.
COUNTED = str(Path(rocketbroker.__file__).parent)


async def calls(work: Callable[[], Awaitable[object]], messages: int, within: str = "") -> tuple[float, float]:
    """Return the calls of Python functions, and of C functions, that some work takes a message."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if frame.f_code.co_filename.startswith(within):
            counts[event] += 1

    gc.disable()
    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    print(f"{counts['call'] / messages:.2f} Python and {counts['c_call'] / messages:.2f} C functions a message")
    return counts["call"] / messages, counts["c_call"] / messages


def feed(path: SendPath, data: bytes) -> None:
    """Hand one read event to the connection, with as few calls as possible."""
    path.connection.get_buffer(-1)[: len(data)] = data
    path.connection.buffer_updated(len(data))


async def fed_calls(path: SendPath, events: list[bytes], messages: int) -> tuple[float, float]:
    """Return the calls a message that handling some read events takes."""

    async def work() -> None:
        for data in events:
            feed(path, data)

    return await calls(work, messages)


@pytest.mark.parametrize(
    ("together", "most_python", "most_c"),
    [(MESSAGES, 3.5, 18.4), (1, 38.8, 54.5)],
    ids=["sends of one read event", "each send alone"],
)
async def test_calls_a_message(tmp_path: Path, together: int, most_python: float, most_c: float):
    frames = [send_frame(number + 1, b"body") for number in range(8 * MESSAGES)]
    async with send_path(tmp_path) as path:
        # Queues get room, and the connection its template.
        for first in range(0, 6 * MESSAGES, MESSAGES):
            feed(path, b"".join(frames[first : first + MESSAGES]))
        measured = frames[-MESSAGES:]
        events = [b"".join(measured[first : first + together]) for first in range(0, MESSAGES, together)]

        python, c = await fed_calls(path, events, MESSAGES)

    assert python <= most_python
    assert c <= most_c


@pytest.mark.parametrize(
    ("together", "most_python", "most_c"),
    [(BATCHES, 0.9, 1.45), (1, 2.42, 3.33)],
    ids=["batches of one read event", "each batch alone"],
)
async def test_calls_a_message_of_a_batch(tmp_path: Path, together: int, most_python: float, most_c: float):
    frames = [batch_frame(number, EACH, b"body") for number in range(6 * BATCHES)]
    async with send_path(tmp_path) as path:
        for first in range(0, 5 * BATCHES, BATCHES):
            feed(path, b"".join(frames[first : first + BATCHES]))
        assert path.store.index_service is not None
        path.store.index_service.flush()
        measured = frames[-BATCHES:]
        events = [b"".join(measured[first : first + together]) for first in range(0, BATCHES, together)]

        python, c = await fed_calls(path, events, BATCHES * EACH)

        assert path.store.appender.put_count == 6 * BATCHES * EACH
    assert python <= most_python
    assert c <= most_c


async def test_calls_a_pulled_message(tmp_path: Path):
    frames = [send_frame(number + 1, b"body") for number in range(EACH * QUEUES)]
    async with send_path(tmp_path) as path:
        for first in range(0, len(frames), EACH):
            feed(path, b"".join(frames[first : first + EACH]))
        event = b"".join(pull_frame(queue_id, 0, EACH) for queue_id in range(QUEUES))
        feed(path, event)
        taken = path.transport.taken

        python, c = await fed_calls(path, [event], EACH * QUEUES)

        assert path.transport.taken - taken > EACH * QUEUES * 100
    assert python <= 1.3
    assert c <= 2.3


async def test_calls_a_send():
    async with answered_client() as client, Producer("PG", client=client) as producer:
        message = Message(client_path.TOPIC, b"body")
        await producer.send(message)

        async def send() -> None:
            for _ in range(ROUNDS):
                await producer.send(message)

        python, c = await calls(lambda: asyncio.gather(*(send() for _ in range(SENDERS))), SENDERS * ROUNDS, COUNTED)

    assert python <= 76.5
    assert c <= 61.2


# The handler takes 27.4 C functions a message; beside other tests some loop turns serve fewer messages each.
@pytest.mark.parametrize(
    ("handles", "most_python", "most_c"), [(True, 33.0, 28.0), (False, 23.5, 22.0)], ids=["handler", "loop"]
)
async def test_calls_a_consumed_message(most_python: float, most_c: float, *, handles: bool):
    complete = asyncio.Event()
    received = 0

    async def take(_message: ReceivedMessage) -> None:
        nonlocal received
        received += 1
        if received == CONSUMED:
            complete.set()

    async with (
        answered_client(PULLS) as client,
        PushConsumer("CG", client=client, handler=take if handles else None) as consumer,
    ):

        async def consume() -> None:
            await consumer.subscribe(client_path.TOPIC)
            if handles:
                await complete.wait()
                return
            async for message in consumer:
                await take(message)
                if complete.is_set():
                    break

        python, c = await calls(consume, CONSUMED, COUNTED)

    assert python <= most_python
    assert c <= most_c
