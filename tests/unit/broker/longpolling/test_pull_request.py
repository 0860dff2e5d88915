import asyncio
from collections.abc import Iterable

import pytest

from rocketbroker.broker.longpolling.pull_request import Deadlines, ManyPullRequest, PullRequest
from rocketbroker.codec.remoting.handler import HELD
from tests.support.fakes import FakeConnection


async def test_items_are_due_in_order_and_once():
    calls: list[set[str]] = []
    done = asyncio.Event()

    def due(items: Iterable[str]) -> None:
        calls.append(set(items))
        if "last" in calls[-1]:
            done.set()

    deadlines: Deadlines[str] = Deadlines(due)
    begin = asyncio.get_running_loop().time()
    deadlines.add("last", 0.1)
    deadlines.add("first", 0.02)
    gone = deadlines.add("gone", 0.05)
    deadlines.discard("gone", gone)
    deadlines.discard("gone", gone)
    async with asyncio.timeout(60):
        await done.wait()

    assert calls == [{"first"}, {"last"}]
    assert asyncio.get_running_loop().time() - begin >= 0.1
    assert len(deadlines) == 0
    assert deadlines._timer is None


async def test_many_items_of_one_time_cost_one_call_and_one_timer():
    calls: list[int] = []
    deadlines: Deadlines[int] = Deadlines(lambda items: calls.append(len(list(items))))
    ticks = {deadlines.add(item, 3600) for item in range(1000)}
    assert len(ticks) <= 2 or len(deadlines._ticks) == len(ticks)
    deadlines._ticks = [tick - 72_000 * 2 for tick in deadlines._ticks]
    deadlines._items = {tick - 72_000 * 2: items for tick, items in deadlines._items.items()}
    deadlines._run()
    assert sum(calls) == 1000
    assert len(calls) == len(ticks)


async def test_times_of_items_that_are_gone_take_no_memory():
    deadlines: Deadlines[int] = Deadlines(lambda _items: None)
    for second in range(20_000):
        deadlines.discard(second, deadlines.add(second, second))
    assert len(deadlines._items) == 0
    assert len(deadlines._ticks) <= 1_025
    deadlines.stop()


async def test_a_time_beyond_all_bounds_is_kept():
    deadlines: Deadlines[int] = Deadlines(lambda _items: None)
    deadlines.add(1, 2**63 / 1000)
    await asyncio.sleep(0)
    assert len(deadlines) == 1
    deadlines.stop()
    assert len(deadlines) == 0


def pull(*codes: int, offset: int = 0, filters: bool = False) -> PullRequest:
    return PullRequest(
        FakeConnection(),
        None,
        "T",
        0,
        offset,
        frozenset(codes) or None,
        (lambda: True) if filters else None,
        run=lambda _connection, _command, _request: HELD,
    )


@pytest.fixture
def queue() -> ManyPullRequest:
    return ManyPullRequest("T", 0)


@pytest.mark.parametrize("others", [0, 3, 4, 100])
def test_a_message_takes_the_pulls_that_want_it(queue: ManyPullRequest, others: int):
    for number in range(others):
        queue.add(pull(100 + number))
    everything, seven, both = pull(), pull(7), pull(7, 8)
    for each in (everything, seven, both):
        queue.add(each)

    assert set(queue.take(8, 1)) == {everything, both}
    assert set(queue.take(9, 1)) == set()
    assert seven in queue.take(7, 1)
    assert queue.count == others + 3, "what is taken stays until it is removed"
    for each in (everything, seven, both):
        queue.remove(each)
    assert queue.count == others
    assert list(queue.take(7, 1)) == []


def test_nothing_is_left_of_pulls_that_are_removed(queue: ManyPullRequest):
    pulls = [pull(*range(number, number + 3)) for number in range(20)] + [pull(), pull(filters=True)]
    for each in pulls:
        queue.add(each)
    for each in pulls:
        queue.remove(each)

    left = (queue.count, queue.filtered, queue._everything, queue._few, queue._by_code)
    assert not any(left)


def test_a_pull_for_a_later_message_stays(queue: ManyPullRequest):
    pulls = [pull(*codes, offset=offset) for codes in ((), (7,)) for offset in (5, 6)]
    pulls += [pull(7, offset=offset) for offset in (5, 6) * 5]
    for each in pulls:
        queue.add(each)

    assert set(queue.take(7, 6)) == {each for each in pulls if each.offset == 5}
    assert set(queue.take(7, 7)) == {each for each in pulls if each.offset == 6}


def test_pulls_that_filter_are_taken_by_no_message(queue: ManyPullRequest):
    queue.add(filtering := pull(filters=True))
    assert list(queue.take(7, 1)) == []
    assert queue.filtered == {filtering}
