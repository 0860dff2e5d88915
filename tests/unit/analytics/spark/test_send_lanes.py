"""Bounds and ends of concurrent sends; rate and order of a replay are in tests/unit/analytics/jobs/test_replay.py."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rocketbroker.analytics.spark.send_lanes import RETRY_TIMES, SendLanes, send_until_ok
from rocketbroker.client.core.errors import (
    ClientStateError,
    InvalidMessageError,
    SendFailedError,
    TopicRouteError,
    broker_error,
)
from rocketbroker.client.core.message import Message, SendResult, SendStatus
from rocketbroker.client.producer.message_sender import QueueSelector, select_by_hash
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RemotingConnectError, RocketBrokerError, StoreError
from tests.support.sent_messages import StepClock, send_result

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


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
    """Answers the first sends by ``refusals``: errors, or acknowledgements other than SEND_OK."""

    def __init__(self, *refusals: Exception | SendStatus) -> None:
        self.refusals = refusals
        self.queues: list[MessageQueue | None] = []

    async def send(self, message: Message, queue: QueueSelector | None) -> SendResult:
        self.queues.append(queue(QUEUES, message) if queue else None)
        if len(self.queues) > len(self.refusals):
            return send_result()
        refusal = self.refusals[len(self.queues) - 1]
        if isinstance(refusal, Exception):
            raise refusal
        return send_result(refusal)


KEYED = select_by_hash("k3")


@pytest.mark.parametrize("queue", [None, KEYED])
async def test_a_send_is_tried_again_after_pauses_that_double(clock: StepClock, queue: QueueSelector | None) -> None:
    sender = RefusingSender(*[RemotingConnectError("no connection")] * RETRY_TIMES)
    await send_until_ok(sender, Message("T", b"m"), queue, RETRY_TIMES)
    assert len(sender.queues) == 11
    assert len(set(sender.queues)) == 1
    assert clock.now == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 3 * 10)


@pytest.mark.parametrize("queue", [None, KEYED])
@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SendStatus.SEND_OK])
@pytest.mark.usefixtures("clock")
async def test_only_send_ok_counts_as_sent(status: SendStatus, queue: QueueSelector | None) -> None:
    sender = RefusingSender(status, status)
    await send_until_ok(sender, Message("T", b"m"), queue, 2)
    assert len(sender.queues) == 3
    with pytest.raises(SendFailedError, match=f"broker a stored the message, but answered {status.name}: it may be"):
        await send_until_ok(RefusingSender(status, status), Message("T", b"m"), queue, 1)
    stored = RefusingSender(status, status)
    assert await send_until_ok(stored, Message("T", b"m"), queue, 2, accepts_stored=True) is status
    assert len(stored.queues) == 1


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (SendFailedError("sent 1 times", ()), 3),
        (broker_error(ResponseCode.SYSTEM_BUSY, "later"), 3),
        (TopicRouteError("no route"), 3),
        (broker_error(ResponseCode.MESSAGE_ILLEGAL, "too long"), 1),
        (InvalidMessageError("queue 1 is at several brokers"), 1),
        (ClientStateError("closed"), 1),
    ],
)
@pytest.mark.usefixtures("clock")
async def test_what_no_retry_cures_is_tried_once(error: RocketBrokerError, tries: int) -> None:
    sender = RefusingSender(*[error] * 9)
    with pytest.raises(type(error), match=str(error)):
        await send_until_ok(sender, Message("T", b"m"), None, 2)
    assert len(sender.queues) == tries


async def test_a_pause_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    pausing = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        pausing.set()
        await asyncio.Future()

    monkeypatch.setattr("rocketbroker.analytics.spark.send_lanes.asyncio.sleep", sleep)
    sender = RefusingSender(*[RemotingConnectError("no connection")] * 9)
    sending = asyncio.create_task(send_until_ok(sender, Message("T", b"m"), None, 9))
    await pausing.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert len(sender.queues) == 1
