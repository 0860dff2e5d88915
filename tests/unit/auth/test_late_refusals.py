"""Refusals that wait: their order, and their bounds."""

import asyncio
from typing import Never

import pytest

from rocketbroker.auth.late_refusals import MAX_OF_ADDRESS, MAX_WAITING, LateRefusals


async def test_refusals_are_raised_when_their_time_has_come_the_soonest_first():
    late = LateRefusals()
    order: list[str] = []
    future: asyncio.Future[Never] | None = None
    for name, seconds in (("second", 0.1), ("first", 0.05), ("third", 0.15)):
        future = late.hold("10.0.0.1", seconds, ValueError(name))
        assert future is not None
        future.add_done_callback(lambda done: order.append(str(done.exception())))
    assert future is not None
    with pytest.raises(ValueError, match="third"):
        await future
    assert order == ["first", "second", "third"]
    assert len(late) == 0


async def test_one_address_and_all_of_them_have_bounds_and_no_task_waits():
    late, tasks = LateRefusals(), len(asyncio.all_tasks())
    held = [late.hold("10.0.0.1", 60, ValueError()) for _ in range(50_000)]
    assert sum(each is not None for each in held) == MAX_OF_ADDRESS
    more = [late.hold(f"10.0.{number % 200}.2", 60, ValueError()) for number in range(50_000)]
    assert sum(each is not None for each in more) == MAX_WAITING - MAX_OF_ADDRESS
    assert (len(late), len(asyncio.all_tasks())) == (MAX_WAITING, tasks)
    late.stop()
    assert len(late) == 0
    # Whoever counted is forgotten, too.
    assert late.hold("10.0.0.1", 60, ValueError()) is not None
    late.stop()


async def test_a_wait_that_was_cancelled_is_no_error():
    late = LateRefusals()
    gone, last = late.hold("10.0.0.1", 0.0, ValueError("gone")), late.hold("10.0.0.1", 0.01, ValueError("last"))
    assert gone is not None
    assert last is not None
    gone.cancel()
    with pytest.raises(ValueError, match="last"):
        await last
