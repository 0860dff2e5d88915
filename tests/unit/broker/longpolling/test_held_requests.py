import asyncio
from collections.abc import Iterable

from rocketbroker.broker.longpolling.held_requests import Deadlines


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
