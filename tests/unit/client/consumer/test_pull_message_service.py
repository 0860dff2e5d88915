"""Pull loop of one queue."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.consumer import pull_message_service
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.damaged_messages import after_a_move
from rocketbroker.client.consumer.flow_control import FlowControl, HeldBytes
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.consumer.pull_message_service import PullMessageService
from rocketbroker.client.message_selector import MessageSelector
from rocketbroker.client.pull_api_wrapper import PullAPIWrapper, subscription_data
from rocketbroker.client.pull_result import PullResult, PullStatus
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.common.errors import RemotingTimeoutError
from tests.support.consumer_parts import QUEUE, message
from tests.support.fakes import FakeClock


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
