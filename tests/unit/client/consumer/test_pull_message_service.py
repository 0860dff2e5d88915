"""Pull loops of a group's member and of an iteration: damage, moves, failures, commits."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from rocketbroker.client.consumer import pull_message_service
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.consumer.pull_api_wrapper import PullAPIWrapper
from rocketbroker.client.consumer.pull_message_service import (
    DamagedMessages,
    MessageStream,
    PullMessageService,
    after_a_move,
    passes,
)
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientStateError, broker_error
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, PullStatus, subscription_data
from rocketbroker.client.core.requests import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import (
    CorruptRecordError,
    RemotingConnectError,
    RemotingTimeoutError,
    RocketBrokerError,
)
from tests.support.consumer_parts import QUEUE, message
from tests.support.fakes import FakeClock
from tests.support.waiting import turns, until

DAMAGED = PullResult(PullStatus.FOUND, 7, 0, 100, [], damage="bodyCRC is wrong")


def test_a_message_that_stays_damaged_is_named_each_minute_and_then_skipped(caplog: pytest.LogCaptureFixture):
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, 150.0, clock.monotonic)
    skips = []
    for _ in range(200):
        skips.append(messages.skips(DAMAGED))
        clock.advance(1)
    assert skips == [False] * 150 + [True] * 50
    assert [record.getMessage().count("pulled again") for record in caplog.records] == [1, 1, 1, 0]
    assert "the message at 7 is damaged and skipped: bodyCRC is wrong" in caplog.text


def test_a_sound_message_starts_the_time_anew():
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, 10.0, clock.monotonic)
    assert not messages.skips(DAMAGED)
    clock.advance(20)
    messages.sound()
    assert not messages.skips(DAMAGED)


def test_a_message_may_be_waited_for_without_end():
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, math.inf, clock.monotonic)
    for _ in range(5):
        assert not messages.skips(DAMAGED)
        clock.advance(1e6)


class Pulls(PullAPIWrapper):
    """Answers given results, then waits."""

    def __init__(self, *results: PullResult | Exception) -> None:
        super().__init__(ClientInstance("127.0.0.1:1"), "CG", 1.0)
        self.results = list(results)
        self.offsets: list[int] = []
        self.done = asyncio.Event()

    async def pull(
        self, queue: MessageQueue, offset: int, max_nums: int, subscription: SubscriptionData, suspend_timeout_s: float
    ) -> PullResult:
        self.offsets.append(offset)
        if not self.results:
            self.done.set()
            await asyncio.Event().wait()
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class Offsets(QueueOffsets):
    """Finds a given offset by time, and keeps the times that it was asked for."""

    def __init__(self, found: int) -> None:
        self._found = found
        self.asked: list[int] = []

    async def search_offset(self, _queue: MessageQueue, timestamp_ms: int) -> int:
        self.asked.append(timestamp_ms)
        return self._found


async def run(
    pulls: Pulls, retry_s: float = 60.0, offsets: QueueOffsets | None = None
) -> tuple[list[int], list[int], dict[MessageQueue, int]]:
    """Return the offsets of messages that were put, of skips, and of moves."""
    put: list[int] = []
    skipped: list[int] = []
    moved: dict[MessageQueue, int] = {}
    held_bytes = HeldBytes(FlowControl())
    held = ProcessQueue(QUEUE, 0, 0.0, held_bytes)

    def take(_held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        put.extend(each.queue_offset for each in messages)

    async def move(offsets: Mapping[MessageQueue, int]) -> None:
        moved.update(offsets)
        held.drop()

    service = PullMessageService(
        pull_api=pulls,
        subscriptions={"T": subscription_data("T", MessageSelector.by_tag("*"), 1)},
        held_bytes=held_bytes,
        stats=ConsumerStats(FakeClock()),
        clock=FakeClock(),
        batch_size=32,
        put=take,
        skip=lambda held: skipped.append(held.commit_offset),
        move=move,
        damaged_retry_s=retry_s,
        offsets=offsets or Offsets(0),
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        loop = group.create_task(service.run(held))
        ended = group.create_task(pulls.done.wait())
        await asyncio.wait([loop, ended], return_when=asyncio.FIRST_COMPLETED)
        loop.cancel()
        ended.cancel()
    return put, skipped, moved


def found(*offsets: int) -> PullResult:
    return PullResult(PullStatus.FOUND, offsets[-1] + 1, 0, 100, [message(offset) for offset in offsets])


async def test_messages_are_passed_on_and_the_next_pull_follows():
    pulls = Pulls(found(0, 1), found(2))
    assert await run(pulls) == ([0, 1, 2], [], {})
    assert pulls.offsets == [0, 2, 3]


async def test_messages_that_the_filter_skips_advance_the_offset():
    pulls = Pulls(PullResult(PullStatus.NO_MATCHED_MSG, 50, 0, 100, []))
    assert await run(pulls) == ([], [50], {})


async def test_an_offset_that_does_not_exist_is_moved():
    pulls = Pulls(PullResult(PullStatus.OFFSET_ILLEGAL, 70, 70, 100, []))
    assert await run(pulls) == ([], [], {QUEUE: 70})
    assert pulls.offsets == [0]


async def test_a_failed_pull_is_repeated_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(pull_message_service, "_RETRY_S", 0.001)
    pulls = Pulls(*[RemotingTimeoutError("no answer")] * 3, found(0))
    assert (await run(pulls))[0] == [0]
    assert caplog.text.count("no answer") == 1


def damaged(at: int, *before: int) -> PullResult:
    return PullResult(PullStatus.FOUND, at, 0, 100, [message(offset) for offset in before], damage="bodyCRC is wrong")


async def test_a_damaged_message_is_pulled_again_after_those_before_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(pull_message_service, "_RETRY_S", 0.001)
    pulls = Pulls(damaged(2, 0, 1), damaged(2), found(2, 3))
    assert await run(pulls) == ([0, 1, 2, 3], [], {})
    assert pulls.offsets == [0, 2, 2, 4]
    assert caplog.text.count("the message at 2 is damaged and pulled again, for 60 s") == 1


async def test_damaged_messages_are_skipped_when_their_time_is_over(caplog: pytest.LogCaptureFixture):
    pulls = Pulls(damaged(0), damaged(1), found(2))
    assert await run(pulls, retry_s=0.0) == ([2], [0, 1, 1, 2], {})
    assert pulls.offsets == [0, 1, 2, 3]
    assert caplog.text.count("the message at 0 is damaged and skipped: bodyCRC is wrong") == 1
    assert "2 damaged messages were skipped; the next one is sound" in caplog.text


@pytest.mark.parametrize(("first_new", "at"), [(0, 0), (10, 10)])
async def test_a_queue_that_ends_below_the_offset_is_new_or_has_lost_messages(
    caplog: pytest.LogCaptureFixture, first_new: int, at: int
):
    """A new queue has younger messages only; one that was cut has those that were consumed."""
    offsets = Offsets(first_new)
    pulls = Pulls(found(*range(20)), PullResult(PullStatus.OFFSET_ILLEGAL, 10, 0, 10, []))
    _, _, moved = await run(pulls, offsets=offsets)
    assert moved == {QUEUE: at}
    assert offsets.asked == [message(19).store_timestamp + 1]
    assert ("its topic was made again; it is consumed from its beginning, 0" in caplog.text) == (at == 0)


async def test_a_queue_of_which_nothing_was_pulled_is_compared_with_the_time_of_its_taking():
    offsets = Offsets(0)
    await run(Pulls(PullResult(PullStatus.OFFSET_ILLEGAL, 0, 0, 0, [])), offsets=offsets)
    assert offsets.asked == []  # nothing was below
    offsets = Offsets(0)
    result = PullResult(PullStatus.OFFSET_ILLEGAL, 10, 0, 10, [])
    assert await after_a_move(offsets, QUEUE, 20, result, 1000) == 0
    assert offsets.asked == [1001]


A, B = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
HOST = bytes(8)


def stored(queue: MessageQueue, offset: int) -> MessageExt:
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
        found = [stored(queue, each) for each in range(offset, end)]
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
    queues.errors = [broker_error(ResponseCode.SYSTEM_ERROR, "no SQL92 here") for _ in range(3)]
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
        (broker_error(ResponseCode.SYSTEM_BUSY, ""), True),
        (broker_error(ResponseCode.SUBSCRIPTION_NOT_LATEST, ""), True),
        (broker_error(ResponseCode.FILTER_DATA_NOT_EXIST, ""), True),
        (broker_error(4711, ""), False),
        (broker_error(ResponseCode.NO_PERMISSION, ""), False),
        (broker_error(ResponseCode.TOPIC_NOT_EXIST, ""), False),
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
        sound = [stored(queue, each) for each in range(offset, 2)]
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
