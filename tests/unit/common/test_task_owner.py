import asyncio

import pytest

from rocketbroker.common import lifecycle
from rocketbroker.common.lifecycle import TICK_S, TaskOwner, until_tick
from tests.support.waiting import until


async def test_whenever_waits_the_returned_seconds_and_continues_after_an_error(caplog):
    pauses = iter([0.0, None, 0.0])
    called = asyncio.Event()

    async def action():
        pause = next(pauses, 60.0)
        if pause is None:
            raise ValueError("once")
        if pause:
            called.set()
        return pause

    tasks = TaskOwner("Test")
    tasks.whenever(action, 0.0, "act")
    async with asyncio.timeout(60):
        await called.wait()
    await tasks.stop()
    assert "Test.act failed; next try in 0.0 s" in caplog.text


async def test_a_failed_loop_is_logged_with_its_traceback_and_restarts(caplog, monkeypatch):
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.0)
    rounds: list[int] = []
    came_back = asyncio.Event()

    async def loop():
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise KeyError("nobody foresaw this")
        came_back.set()
        await asyncio.Event().wait()

    tasks = TaskOwner("Test")
    task = tasks.forever(loop, "loop")
    async with asyncio.timeout(60):
        await came_back.wait()
    assert not task.done()
    await tasks.stop()
    assert task.cancelled()
    assert caplog.text.count("Test.loop failed; it restarts in") == 2
    assert "KeyError: 'nobody foresaw this'" in caplog.text


async def test_a_loop_that_ends_by_itself_is_not_begun_again():
    rounds = []

    async def loop():
        rounds.append(1)

    tasks = TaskOwner("Test")
    await tasks.forever(loop, "loop")
    assert rounds == [1]
    await tasks.stop()


async def test_parts_that_look_in_short_intervals_look_at_the_same_moments():
    loop = asyncio.get_running_loop()
    for pause_s in (TICK_S, 1.0, 5.0):
        due = loop.time() + until_tick(pause_s)
        assert due / TICK_S == pytest.approx(round(due / TICK_S), abs=0.01)
        assert due - loop.time() == pytest.approx(pause_s, abs=TICK_S / 2 + 0.01)


async def test_what_is_due_after_a_pause_waits_for_no_later_tick(monkeypatch):
    loop = asyncio.get_running_loop()
    begin = round(loop.time() / TICK_S) * TICK_S
    ends = []
    for part in range(20):
        now = begin + TICK_S * part / 20
        monkeypatch.setattr(loop, "time", lambda now=now: now)
        ends.append(now + until_tick(TICK_S, lifecycle._LATE_S))
        assert 0 < ends[-1] - now < TICK_S + lifecycle._LATE_S + 1e-6
        monkeypatch.undo()
    # It is a tick all the same, and a timer that fired a moment early skips the one that has come.
    assert ends == pytest.approx([begin + TICK_S] * 18 + [begin + 2 * TICK_S] * 2)


async def test_what_is_looked_for_whenever_it_is_due_is_hardly_late(monkeypatch):
    pauses: list[tuple[float, ...]] = []

    async def action() -> float:
        return 3.0

    def until_tick(*of: float) -> float:
        pauses.append(of)
        return 0.0

    monkeypatch.setattr(lifecycle, "until_tick", until_tick)
    tasks = TaskOwner("Test")
    tasks.whenever(action, 60.0, "act")
    await until(lambda: len(pauses) > 1)
    await tasks.stop()
    assert set(pauses) == {(3.0, lifecycle._LATE_S)}


async def test_a_pause_below_a_tick_is_kept():
    assert until_tick(0.02) == 0.02
