"""Check points in memory, and offsets that the file gets only once their check points are on disk."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.broker.pop.pop_queues import OpenCheckPoint, PopQueue, compact
from tests.support.pop_broker import TOPIC, PopBroker

OFFSETS = st.lists(st.integers(0, 2**40), min_size=1, max_size=32, unique=True).map(sorted)


def check_point(offsets: list[int], left: int | None = None) -> OpenCheckPoint:
    """A check point of these messages."""
    queue = PopQueue(TOPIC, "G", 0, -1)
    left = (1 << len(offsets)) - 1 if left is None else left
    return OpenCheckPoint(queue, offsets[0], 1_000, 500, compact(offsets), left, 0)


@given(OFFSETS, st.data())
def test_bits_are_those_of_the_named_messages(offsets: list[int], data: st.DataObject) -> None:
    named = data.draw(st.lists(st.sampled_from(offsets)))
    others = data.draw(st.lists(st.integers(0, 2**41)))
    found = check_point(offsets)
    expected = sum(1 << offsets.index(each) for each in {*named, *(set(others) & set(offsets))})
    assert found.bits_of([*named, *others]) == expected
    found.left &= ~expected
    assert found.unacknowledged == [each for each in offsets if each not in {*named, *others}]


@given(
    OFFSETS | st.builds(lambda first, count: [*range(first, first + count)], st.integers(0, 50), st.integers(1, 32)),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_the_bits_of_a_range_are_those_of_its_offsets(offsets: list[int], start: int, stop: int) -> None:
    found = check_point(offsets)
    assert found.bits_of(range(start, stop)) == found.bits_of([*range(start, stop)])


def test_successive_offsets_are_a_range() -> None:
    assert compact([7, 8, 9]) == range(7, 10)
    assert compact([7]) == range(7, 8)
    assert compact([7, 9]) == (7, 9)


def test_a_check_point_returns_after_its_invisible_time() -> None:
    assert check_point([1]).revive_time == 1_500


@pytest.mark.parametrize(("step", "most"), [(1, 650), (2, 2_100)], ids=["one after the other", "with gaps"])
async def test_open_check_points_take_as_much_memory_as_the_docstring_says(
    broker: PopBroker, step: int, most: int
) -> None:
    queue, number = broker.check_points.queues.get(TOPIC, "G", 0), 5_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for each in range(number):
            start = each * 100
            offsets = compact(range(start, start + 32 * step, step))
            pop_time = 1_795_255_000_000 + each // 5
            broker.check_points.add(OpenCheckPoint(queue, start, pop_time, 60_000, offsets, 2**32 - 1, 0, each))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / number < most


def durable(broker: PopBroker, group: str = "G") -> int:
    """The offset that the file would get."""
    table = broker.check_points.queues.held_back()
    held = table.get(f"{TOPIC}@{group}", {}).get(0)
    return broker.offsets.query(group, TOPIC, 0) if held is None else held


async def test_the_file_gets_an_offset_once_its_check_point_is_on_disk(broker: PopBroker) -> None:
    for _ in range(4):
        broker.send()
    await broker.pop(queue_id=0, most=1)
    assert (broker.offsets.query("G", TOPIC, 0), durable(broker)) == (1, -1)
    await broker.sync()
    assert durable(broker) == 1
    broker.clock.advance(1)
    await broker.pop(queue_id=0, most=1)
    assert (broker.offsets.query("G", TOPIC, 0), durable(broker)) == (2, 1)
    await broker.sync()
    assert durable(broker) == 2


async def test_a_stop_writes_no_offset_whose_check_point_is_not_on_disk(broker: PopBroker) -> None:
    broker.send()
    await broker.sync()
    await broker.pop(queue_id=0, most=1)
    await broker.recovery.stop()
    assert durable(broker) == 0
    await broker.sync()
    assert durable(broker) == 1


async def test_an_offset_set_by_somebody_else_goes_to_the_file(broker: PopBroker) -> None:
    for _ in range(10):
        broker.send()
    await broker.pop(queue_id=0, most=1)
    broker.offsets.replace("G", TOPIC, 0, 7)
    assert durable(broker) == 7


@pytest.mark.parametrize("target", [0, 7])
async def test_pops_before_an_offset_was_set_say_nothing_about_the_file(broker: PopBroker, target: int) -> None:
    for _ in range(10):
        broker.send()
    await broker.pop(queue_id=0, most=3)
    broker.offsets.replace("G", TOPIC, 0, target)
    assert durable(broker) == target
    await broker.sync()
    broker.clock.advance(1)
    await broker.pop(queue_id=0, most=1)
    # The first pop is on disk by now, the second is not: the offset in between was set.
    assert durable(broker) == target


async def test_the_file_keeps_other_queues_of_a_group_whose_new_offset_is_held_back(broker: PopBroker) -> None:
    broker.offsets.commit("G", TOPIC, 1, 5)
    broker.send()
    await broker.pop(queue_id=0)
    text = broker.offsets.encode().decode()
    assert '"T@G":{\n\t\t\t1:5\n\t\t}' in text
