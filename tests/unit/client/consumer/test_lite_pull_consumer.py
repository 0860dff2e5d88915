"""Commits and positions of a consumer whose queues are lost, reset and sought."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.client.consumer.lite_pull_consumer import LitePullConsumer
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from tests.support.consumer_parts import QUEUE, MemoryOffsets, message
from tests.support.scripted_server import ScriptedServer, name_server, route_of


class Stage:
    def __init__(self, address: str) -> None:
        self.offsets = MemoryOffsets({QUEUE: 0})
        self.consumer = LitePullConsumer("CG", address, offset_store=self.offsets, auto_commit=False, hooks=[self])
        self.outcomes: list[Outcome] = []

    def consume_message(self, received: ReceivedMessage) -> None:
        received.observers += (self.outcomes.append,)

    async def poll(self, *numbers: int) -> None:
        """Let messages arrive, and poll them; the poll after it counts them as consumed."""
        await self.arrive(*numbers)
        assert await self.consumer.poll(0.0) == []

    async def arrive(self, *numbers: int) -> None:
        """Let messages arrive, and poll them."""
        held = self.consumer._queues.table.queues[QUEUE]
        messages = held.put([message(number) for number in numbers])
        held.next_offset = numbers[-1] + 1
        self.consumer._put(held, messages)
        assert [each.queue_offset for each in await self.consumer.poll()] == list(numbers)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        ScriptedServer({}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
    ):
        stage = Stage(names.address)
        async with stage.consumer:
            await stage.consumer.assign([QUEUE])
            yield stage


async def test_a_commit_leaves_a_queue_alone_that_was_lost_and_taken_again(stage: Stage):
    await stage.poll(0, 1)
    await stage.consumer.assign([])
    stage.offsets.persisted[QUEUE] = 9  # by the member that had it in between
    await stage.consumer.assign([QUEUE])
    await stage.consumer.commit()
    assert stage.offsets.persisted[QUEUE] == 9


async def test_hooks_see_messages_of_a_lost_queue_as_given_back(stage: Stage):
    await stage.arrive(0, 1)
    await stage.consumer.assign([])
    await stage.consumer.commit()
    assert stage.outcomes == [Outcome.RETRIED] * 2


async def test_a_commit_ends_the_consumption_for_hooks(stage: Stage):
    await stage.arrive(0, 1)
    await stage.consumer.commit()
    assert stage.outcomes == [Outcome.ACKNOWLEDGED] * 2


async def test_a_commit_leaves_a_queue_alone_that_was_reset(stage: Stage):
    await stage.poll(0, 1)
    await stage.consumer.reset_offsets("T", {QUEUE: 0})
    await stage.consumer.commit()
    assert stage.offsets.persisted[QUEUE] == 0


async def test_a_commit_covers_a_seek(stage: Stage):
    await stage.poll(0, 1)
    await stage.consumer.seek(QUEUE, 7)
    assert stage.offsets.persisted[QUEUE] == 0
    await stage.consumer.commit()
    assert stage.offsets.persisted[QUEUE] == 7


async def test_a_commit_covers_the_messages_of_earlier_polls(stage: Stage):
    await stage.poll(0, 1)
    await stage.consumer.commit()
    assert stage.offsets.persisted[QUEUE] == 2
