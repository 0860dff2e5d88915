"""Time limits of several tasks by one timer."""

import asyncio

import pytest

from rocketbroker.client.consumer.consume_timeout import ConsumeTimeout


async def handle(timeout: ConsumeTimeout, seconds: float) -> str:
    """Wait some seconds as a handler, 0 for one turn of the loop; return how that ended."""
    task = asyncio.current_task()
    assert task is not None
    timeout.begin(task)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "expired" if timeout.end(task) and not task.cancelling() else "cancelled"
    return "expired late" if timeout.end(task) else "done"


async def test_each_task_has_its_own_deadline():
    timeout = ConsumeTimeout(0.05)
    results = [asyncio.create_task(handle(timeout, seconds)) for seconds in (60, 0)]
    assert await results[1] == "done"
    async with asyncio.timeout(5):
        later = asyncio.create_task(handle(timeout, 60))
        assert [await each for each in (results[0], later)] == ["expired", "expired"]
    timeout.stop()


async def test_a_task_that_took_its_time_is_timed_again():
    timeout = ConsumeTimeout(0.02)
    assert [await handle(timeout, seconds) for seconds in (60, 0, 60)] == ["expired", "done", "expired"]
    timeout.stop()


async def test_a_cancelled_task_did_not_expire():
    timeout = ConsumeTimeout(60)
    task = asyncio.create_task(handle(timeout, 60))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"
    timeout.stop()


async def test_a_stopped_timeout_cancels_nothing():
    timeout = ConsumeTimeout(0.01)
    task = asyncio.create_task(handle(timeout, 0.1))
    await asyncio.sleep(0)
    timeout.stop()
    assert await task == "done"


@pytest.mark.parametrize("late", [True, False])
async def test_a_handler_that_catches_the_cancellation_is_not_cancelled_twice(*, late: bool):
    timeout = ConsumeTimeout(0.01)
    task = asyncio.current_task()
    assert task is not None
    timeout.begin(task)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(60)
    await asyncio.sleep(0.05 if late else 0)
    assert timeout.end(task)
    assert not task.cancelling()
    timeout.stop()
