"""Stops that reach their end, whatever becomes of their callers."""

import asyncio

import pytest

from rocketbroker.common.lifecycle import PartList, stop_all, uninterrupted


class Slow:
    """Part whose stop takes some turns of the loop."""

    def __init__(self, name: str, said: list[str], error: Exception | None = None) -> None:
        self._name = name
        self._said = said
        self._error = error

    async def start(self) -> None: ...

    async def stop(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self._said.append(self._name)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_stop_stops_every_part_to_its_end(turns: int):
    said: list[str] = []
    parts = PartList(Slow("first", said), Slow("second", said, ValueError("broken")), Slow("third", said))
    await parts.start()
    stop = asyncio.create_task(parts.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    if stop.cancel():
        await asyncio.wait([stop])
    if turns == 0:  # it had not begun
        await parts.stop()
    assert said == ["third", "second", "first"]


async def test_a_second_stop_waits_for_the_first():
    said: list[str] = []
    parts = PartList(Slow("first", said), Slow("second", said))
    await parts.start()
    stop = asyncio.create_task(parts.stop())
    await asyncio.sleep(0)
    await parts.stop()
    assert said == ["second", "first"]
    await stop


@pytest.mark.parametrize("turns", range(1, 8))
async def test_the_end_of_the_loop_costs_one_step_at_most(turns: int):
    said: list[str] = []
    slow = [Slow(name, said) for name in ("first", "second", "third")]
    stop = asyncio.create_task(stop_all(*(each.stop for each in slow), lambda: said.append("last")))
    for _ in range(turns):
        await asyncio.sleep(0)
    stop.cancel()
    await asyncio.wait([stop])
    assert stop.cancelled()
    assert len(said) == 3
    assert said[-1] == "last"


async def test_the_first_error_is_raised_and_the_others_are_logged(caplog: pytest.LogCaptureFixture):
    said: list[str] = []
    steps = [Slow(name, said, ValueError(name)) for name in ("first", "second")]
    with pytest.raises(ValueError, match="first"):
        await stop_all(steps[0].stop, None, steps[1].stop)
    assert said == ["first", "second"]
    assert "ValueError: second" in caplog.text


async def test_a_result_is_passed_on():
    async def seven() -> int:
        return 7

    assert await uninterrupted(seven()) == 7


async def test_an_error_after_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture):
    stop = asyncio.create_task(uninterrupted(Slow("only", [], ValueError("broken")).stop()))
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    assert "ValueError: broken" in caplog.text
