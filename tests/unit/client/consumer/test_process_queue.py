"""Messages held of one queue."""

import asyncio

from tests.support.consumer_parts import consumption, message, process_queue


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
