"""The pull loop by itself: which queues, which offsets, what is committed, how it ends."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from rocketbroker.client.errors import BrokerNotFoundError, ClientStateError
from rocketbroker.client.message_stream import MessageStream, passes
from rocketbroker.client.pull_result import PullResult, PullStatus
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import (
    BrokerResponseError,
    CorruptRecordError,
    RemotingConnectError,
    RemotingTimeoutError,
    RocketBrokerError,
)
from tests.support.waiting import turns, until

A, B = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
HOST = bytes(8)


def message(queue: MessageQueue, offset: int) -> MessageExt:
    body = b"%d-%d" % (queue.queue_id, offset)
    return MessageExt(
        "T", queue.queue_id, offset, 0, 0, body, b"", 0, 0, 0, 0, HOST, 0, HOST, 0, 0, len(body), 0xDAA320A7
    )


class Queues:
    """Queues in memory: ``lengths`` are their max offsets; a pull past the end waits as long as a broker would."""

    def __init__(self, lengths: dict[MessageQueue, int]) -> None:
        self.lengths = lengths
        self.pulls: list[tuple[MessageQueue, int]] = []
        self.commits: list[tuple[MessageQueue, int]] = []
        self.errors: list[RocketBrokerError] = []

    async def find(self) -> list[MessageQueue]:
        return list(self.lengths)

    async def start_offset(self, _queue: MessageQueue) -> int:
        return 0

    async def pull(self, queue: MessageQueue, offset: int, _suspend_timeout_s: float) -> PullResult:
        self.pulls.append((queue, offset))
        if self.errors:
            raise self.errors.pop(0)
        length = self.lengths[queue]
        if offset >= length:
            await asyncio.sleep(0.01)
            return PullResult(PullStatus.NO_NEW_MSG, offset, 0, length, [])
        end = min(length, offset + 4)
        found = [message(queue, each) for each in range(offset, end)]
        return PullResult(PullStatus.FOUND, end, 0, length, found)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        self.commits.append((queue, offset))

    def stream(self, **settings: Any) -> MessageStream:
        times: dict[str, Any] = {
            "retry_delay_s": 0.01,
            "rescan_interval_s": 0.01,
            "commit_interval_s": 0.01,
            **settings,
        }
        return MessageStream(
            find_queues=self.find, pull=self.pull, start_offset=self.start_offset, commit=self.commit, **times
        )


async def take(stream: MessageStream, number: int) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(60), aclosing(stream.messages()) as messages:
        async for each in messages:
            bodies.append(each.body)
            if len(bodies) == number:
                break
    return bodies


async def test_each_queue_comes_in_order():
    bodies = await take(Queues({A: 30, B: 30}).stream(), 60)
    for queue in (A, B):
        mine = [body for body in bodies if body.startswith(b"%d-" % queue.queue_id)]
        assert mine == [b"%d-%d" % (queue.queue_id, offset) for offset in range(30)]


async def test_a_queue_that_appears_is_pulled_too():
    queues = Queues({A: 1})
    taking = asyncio.ensure_future(take(queues.stream(), 3))
    await until(lambda: (A, 1) in queues.pulls)
    queues.lengths[B] = 2
    assert await taking == [b"0-0", b"1-0", b"1-1"]


async def test_what_was_given_out_last_is_not_committed():
    queues = Queues({A: 10})
    await take(queues.stream(commit_interval_s=60), 7)
    assert queues.commits == [(A, 6)]


async def test_offsets_are_committed_while_it_continues():
    queues = Queues({A: 4})
    async with asyncio.timeout(60), aclosing(queues.stream().messages()) as messages:
        for _ in range(4):
            await anext(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await until(lambda: (A, 4) in queues.commits)
        commits, pulls = len(queues.commits), len(queues.pulls)
        await until(lambda: len(queues.pulls) > pulls + 5)  # each takes as long as the interval of commits
        assert len(queues.commits) == commits, "an offset is committed once"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_slow_reader_stops_the_pulling():
    queues = Queues({A: 10_000})
    async with asyncio.timeout(60), aclosing(queues.stream(buffered_batches=2).messages()) as messages:
        await anext(messages)
        await turns()
        assert len(queues.pulls) <= 5


async def test_nothing_runs_on_after_the_end():
    queues = Queues({A: 10})
    await take(queues.stream(), 1)
    count = len(queues.pulls)
    await turns()
    assert len(queues.pulls) == count


async def test_a_failure_that_passes_is_tried_again(caplog: pytest.LogCaptureFixture):
    queues = Queues({A: 3})
    queues.errors = [RemotingTimeoutError("too slow"), BrokerNotFoundError("gone")]
    assert await take(queues.stream(), 3) == [b"0-0", b"0-1", b"0-2"]
    assert "too slow" in caplog.text


async def test_a_failure_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture):
    queues = Queues({A: 3})
    queues.errors = [BrokerResponseError(ResponseCode.SYSTEM_ERROR, "no SQL92 here") for _ in range(3)]
    assert await take(queues.stream(), 3) == [b"0-0", b"0-1", b"0-2"]
    assert caplog.text.count("no SQL92 here") == 1


async def test_a_failure_that_lasts_ends_it():
    queues = Queues({A: 3})
    queues.errors = [CorruptRecordError("message record at 0: broken")]
    with pytest.raises(CorruptRecordError):
        await take(queues.stream(), 3)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RemotingConnectError(""), True),
        (BrokerNotFoundError(""), True),
        (BrokerResponseError(ResponseCode.SYSTEM_BUSY, ""), True),
        (BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_LATEST, ""), True),
        (BrokerResponseError(ResponseCode.NO_PERMISSION, ""), False),
        (BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, ""), False),
        (ClientStateError(""), False),
        (CorruptRecordError(""), False),
    ],
)
def test_which_failures_pass(error: RocketBrokerError, expected: bool):
    assert passes(error) is expected


class DamagedQueue(Queues):
    """Queue whose message at offset 2 is damaged."""

    async def pull(self, queue: MessageQueue, offset: int, suspend_timeout_s: float) -> PullResult:
        if offset > 2:
            return await super().pull(queue, offset, suspend_timeout_s)
        sound = [message(queue, each) for each in range(offset, 2)]
        return PullResult(PullStatus.FOUND, 2, 0, self.lengths[queue], sound, damage="bodyCRC is wrong")


async def test_a_damaged_message_is_skipped_when_its_time_is_over(caplog: pytest.LogCaptureFixture):
    async with asyncio.timeout(10), aclosing(DamagedQueue({A: 5}).stream(damaged_retry_s=0.05).messages()) as messages:
        offsets = [(await anext(messages)).queue_offset for _ in range(4)]
    assert offsets == [0, 1, 3, 4]
    assert "the message at 2 is damaged and pulled again" in caplog.text


class RecreatedQueue(Queues):
    """Queue that ends at 2 although a group has come to 20."""

    async def start_offset(self, _queue: MessageQueue) -> int:
        return 20

    async def pull(self, queue: MessageQueue, offset: int, suspend_timeout_s: float) -> PullResult:
        if offset > 2:
            return PullResult(PullStatus.OFFSET_ILLEGAL, 2, 0, 2, [])
        return await super().pull(queue, offset, suspend_timeout_s)


async def test_a_queue_that_was_made_again_is_read_from_its_beginning():
    async def after_a_move(_queue: MessageQueue, offset: int, result: PullResult, known_ms: int) -> int:
        assert (offset, known_ms) == (20, 90_000)
        return result.min_offset

    stream = RecreatedQueue({A: 2}).stream(after_a_move=after_a_move, time_ms=lambda: 100_000)
    async with asyncio.timeout(10), aclosing(stream.messages()) as messages:
        assert [(await anext(messages)).queue_offset for _ in range(2)] == [0, 1]
