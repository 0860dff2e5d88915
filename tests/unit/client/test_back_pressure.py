"""Sends in flight are bounded by number and by bytes, and others wait in order."""

import asyncio

import pytest

from rocketbroker.client.back_pressure import BackPressure
from rocketbroker.common.errors import RemotingTooMuchRequestError


async def start(pressure: BackPressure, size: int, timeout_s: float = 10) -> "asyncio.Task[None]":
    task = asyncio.create_task(pressure.acquire(size, timeout_s))
    await asyncio.sleep(0)
    return task


async def test_a_send_waits_for_one_of_as_many_as_may_be_in_flight():
    pressure = BackPressure(2, 1000)
    tasks = [await start(pressure, 1) for _ in range(4)]
    assert [task.done() for task in tasks] == [True, True, False, False]
    pressure.release(1)
    await tasks[2]
    assert not tasks[3].done()
    pressure.release(1)
    await tasks[3]


async def test_a_large_body_goes_alone():
    pressure = BackPressure(10, 1000)
    large = await start(pressure, 5000)
    small = await start(pressure, 1)
    assert (large.done(), small.done()) == (True, False)
    pressure.release(5000)
    await small
    next_large = await start(pressure, 5000)
    assert not next_large.done()
    pressure.release(1)
    await next_large


async def test_nobody_overtakes_a_large_body_that_waits():
    pressure = BackPressure(10, 1000)
    await pressure.acquire(900, 1)
    large, small = await start(pressure, 200), await start(pressure, 1)
    assert not small.done()
    pressure.release(900)
    await asyncio.gather(large, small)


async def test_a_wait_without_end_is_an_error_that_names_the_settings():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(10, 1)
    with pytest.raises(RemotingTooMuchRequestError, match="1 sends with 10 bytes are in flight"):
        await pressure.acquire(1, 0.001)
    pressure.release(10)
    await pressure.acquire(1, 1)


async def test_a_cancelled_send_takes_no_room():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(1, 1)
    waiting, last = await start(pressure, 1), await start(pressure, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    pressure.release(1)
    await last


async def test_a_send_cancelled_at_its_turn_gives_the_room_back():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(1, 1)
    waiting = await start(pressure, 1)
    pressure.release(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await pressure.acquire(1, 0.001)
