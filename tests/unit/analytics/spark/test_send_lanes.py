"""Bounds and ends of concurrent sends; rate and order of a replay are in tests/unit/analytics/jobs/test_replay.py."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rocketbroker.analytics.spark.send_lanes import SendLanes, send_to_queue
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.message_sender import QueueSelector, select_by_hash
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RemotingConnectError, StoreError


def lanes_of(send: Callable[[int], Awaitable[None]], most_bytes: int = 1000) -> SendLanes[int]:
    return SendLanes(send, SystemClock(), lanes=4, rate=0, most_bytes=most_bytes)


async def test_bytes_that_are_not_acknowledged_are_bounded_and_a_larger_item_goes_alone() -> None:
    unanswered: dict[int, asyncio.Event] = {}
    begun: asyncio.Queue[int] = asyncio.Queue()
    seen: list[set[int]] = []

    async def send(size: int) -> None:
        unanswered[size] = asyncio.Event()
        begun.put_nowait(size)
        await unanswered[size].wait()
        seen.append(set(unanswered))
        del unanswered[size]

    async def deal() -> None:
        for lane, size in enumerate(sizes):
            await lanes.put(size, lane, size)

    sizes = (60, 30, 20, 500, 10)
    lanes = lanes_of(send, most_bytes=100)
    running = asyncio.create_task(lanes.run(deal()))
    for size in sizes:
        assert await begun.get() == size
        for _ in range(20):  # whatever could be sent as well is
            await asyncio.sleep(0)
        unanswered[size].set()
    await running
    assert seen == [{60, 30}, {30, 20}, {20}, {500}, {10}]


async def test_after_a_failure_nothing_is_sent_and_what_was_not_is_known() -> None:
    sent = []

    async def send(item: int) -> None:
        await asyncio.sleep(0)
        if item in {5, 6}:
            raise RemotingConnectError(f"no connection for {item}")
        sent.append(item)

    async def deal() -> None:
        for item in range(100):
            if lanes.failure is None:
                await lanes.put(item, 0 if item < 6 else 1, 1)

    lanes = lanes_of(send)
    await lanes.run(deal())
    assert str(lanes.failure) == "no connection for 6"
    assert lanes.unsent[0] == 6
    assert sorted([*sent, *lanes.unsent]) == list(range(21)), "those accepted, and one that waited"


async def test_items_before_an_error_of_their_source_are_sent() -> None:
    sent = []

    async def send(item: int) -> None:
        await asyncio.sleep(0)
        sent.append(item)

    async def deal() -> None:
        for item in range(3):
            await lanes.put(item, 0, 1)
        raise StoreError("no more can be read")

    lanes = lanes_of(send)
    await lanes.run(deal())
    assert (sent, str(lanes.failure), lanes.unsent) == ([0, 1, 2], "no more can be read", [])


class RefusingSender:
    """Refuses the first sends; has the queues of the others."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.queues: list[int] = []

    async def send(self, message: Message, queue: QueueSelector | None) -> None:
        assert queue is not None
        self.queues.append(queue([MessageQueue("T", "a", number) for number in range(4)], message).queue_id)
        if len(self.queues) <= self.refusals:
            raise RemotingConnectError(f"refusal {len(self.queues)}")


async def test_a_send_to_a_chosen_queue_is_tried_again_there() -> None:
    sender = RefusingSender(2)
    await send_to_queue(sender, Message("T", b"m"), select_by_hash("k3"), 3)
    assert len(sender.queues) == 3
    assert len(set(sender.queues)) == 1
    sender = RefusingSender(9)
    with pytest.raises(RemotingConnectError, match="refusal 2"):
        await send_to_queue(sender, Message("T", b"m"), select_by_hash("k3"), 2)
