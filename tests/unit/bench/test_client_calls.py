"""Sends and consumed messages of our client make no more calls than they did; see test_send_calls.py."""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest

import rocketbroker
from bench.client_path import EACH, QUEUES, TOPIC, answered_client
from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage

SENDERS = 64
ROUNDS = 20
PULLS = 8
MESSAGES = PULLS * QUEUES * EACH
# Event loops differ in their calls, and the broker in this process is no part of the client.
COUNTED = str(Path(rocketbroker.__file__).parent)


async def calls(work: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """Return the calls of Python functions, and of C functions, that some work takes."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if frame.f_code.co_filename.startswith(COUNTED):
            counts[event] += 1

    gc.disable()
    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts["call"], counts["c_call"]


async def test_calls_a_send():
    async with answered_client() as client, Producer("PG", client=client) as producer:
        message = Message(TOPIC, b"body")
        await producer.send(message)

        async def send() -> None:
            for _ in range(ROUNDS):
                await producer.send(message)

        python, c = await calls(lambda: asyncio.gather(*(send() for _ in range(SENDERS))))

    sends = SENDERS * ROUNDS
    print(f"{python / sends:.1f} Python functions and {c / sends:.1f} C functions a send")
    assert python / sends <= 76.5
    assert c / sends <= 61.2


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
        if received == MESSAGES:
            complete.set()

    async with (
        answered_client(PULLS) as client,
        PushConsumer("CG", client=client, handler=take if handles else None) as consumer,
    ):

        async def consume() -> None:
            await consumer.subscribe(TOPIC)
            if handles:
                await complete.wait()
                return
            async for message in consumer:
                await take(message)
                if complete.is_set():
                    break

        python, c = await calls(consume)

    print(f"{python / MESSAGES:.1f} Python functions and {c / MESSAGES:.1f} C functions a message")
    assert python / MESSAGES <= most_python
    assert c / MESSAGES <= most_c
