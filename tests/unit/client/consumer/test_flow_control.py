"""Limits of held messages."""

import asyncio

import pytest

from rocketbroker.client.consumer.flow_control import FlowControl, HeldBytes
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.errors import OptionError
from tests.support.consumer_parts import QUEUE, message
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
