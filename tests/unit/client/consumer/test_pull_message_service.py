"""Pull loop of one queue."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.consumer import pull_message_service
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.flow_control import FlowControl, HeldBytes
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.consumer.pull_message_service import PullMessageService
from rocketbroker.client.message_selector import MessageSelector
from rocketbroker.client.pull_api_wrapper import PullAPIWrapper, subscription_data
from rocketbroker.client.pull_result import PullResult, PullStatus
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
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


async def run(pulls: Pulls) -> tuple[list[int], list[int], dict[MessageQueue, int]]:
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
