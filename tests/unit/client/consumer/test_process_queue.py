"""Messages that a consumer holds of a queue, and the limits on them."""

import asyncio

import pytest

from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.core.errors import OptionError
from tests.support.consumer_parts import QUEUE, consumption, message, process_queue
from tests.support.waiting import turns

SIZE = len(message(0).body)


@pytest.mark.parametrize("name", FlowControl.__struct_fields__)
def test_a_limit_is_at_least_one(name: str):
    with pytest.raises(OptionError, match=f"FlowControl: {name} is 0; give a whole number from 1"):
        FlowControl(**{name: 0})


@pytest.mark.parametrize(
    "limits",
    [
        FlowControl(messages_per_queue=2),
        FlowControl(bytes_per_queue=2 * SIZE),
        FlowControl(span_per_queue=1),
        FlowControl(bytes_in_all=2 * SIZE),
    ],
)
async def test_a_pull_waits_at_each_limit_until_a_message_is_consumed(limits: FlowControl):
    held_bytes = HeldBytes(limits)
    held = ProcessQueue(QUEUE, 0, 0.0, held_bytes)
    first, second = message(0), message(1)
    held.put([first])
    await held_bytes.wait_for_room(held)
    held.put([second])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(held_bytes.wait_for_room(held))
        await turns()
        assert not waiting.done()
        held.remove(first)


async def test_an_empty_queue_may_pull_although_others_hold_all_bytes():
    held_bytes = HeldBytes(FlowControl(bytes_in_all=1))
    ProcessQueue(QUEUE, 0, 0.0, held_bytes).put([message(0)])
    assert held_bytes.total == SIZE
    async with asyncio.timeout(5):
        await held_bytes.wait_for_room(ProcessQueue(QUEUE, 0, 0.0, held_bytes))


async def test_a_queue_with_a_message_pulls_when_another_queue_frees_bytes():
    held_bytes = HeldBytes(FlowControl(bytes_in_all=2 * SIZE))
    held, other = (ProcessQueue(QUEUE, 0, 0.0, held_bytes) for _ in range(2))
    held.put([message(0)])
    other.put([consumed := message(0)])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(held_bytes.wait_for_room(held))
        await asyncio.sleep(0)
        other.remove(consumed)


def test_the_offset_to_commit_is_before_the_first_held_message():
    held = process_queue([3, 4, 5])
    assert held.commit_offset == 3
    middle = message(4)
    assert middle not in held, "another message of the same offset is not the held one"
    first = held.first
    assert first is not None
    assert held.remove(first)
    assert held.commit_offset == 4
    while (first := held.first) is not None:
        held.remove(first)
    assert held.commit_offset == 6
    assert (held.bytes, len(held), held.span) == (0, 0, 0)


def test_a_message_pulled_twice_is_held_once():
    held = process_queue([1])
    assert [each.queue_offset for each in held.put([message(1), message(2)])] == [2]
    assert (len(held), held.span, held.offset_range) == (2, 1, (1, 2))


def test_messages_under_way_are_known_by_their_start():
    held = process_queue([1, 2])
    first = held.first
    assert first is not None
    started = consumption(first, held)
    held.start(started, 10.0)
    assert held.started_before(10.0) == []
    assert held.started_before(11.0) == [started]
    held.suspend(first)
    assert held.started_before(11.0) == []


async def test_a_queue_is_idle_without_messages_under_way():
    held = process_queue([1])
    first = held.first
    assert first is not None
    await held.wait_idle()
    held.start(consumption(first, held), 1.0)
    waiting = asyncio.timeout(5)
    async with waiting, asyncio.TaskGroup() as group:
        task = group.create_task(held.wait_idle())
        await asyncio.sleep(0)
        assert not task.done()
        held.remove(first)


def test_a_dropped_queue_holds_nothing():
    held = process_queue([1, 2])
    first = held.first
    held.drop()
    assert (len(held), held.bytes, held.dropped) == (0, 0, True)
    assert first is not None
    assert not held.remove(first)
