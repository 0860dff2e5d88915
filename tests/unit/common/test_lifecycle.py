"""Tasks, threads and parts: their owners start them, log their failures, and end them."""

import asyncio
import threading

import pytest

from rocketbroker.common import lifecycle
from rocketbroker.common.lifecycle import (
    TICK_S,
    PartList,
    ServiceThread,
    TaskOwner,
    stop_all,
    uninterrupted,
    until_tick,
)
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


async def test_parts_that_look_in_short_intervals_look_at_the_same_moments(monkeypatch):
    now = 1000.3 * TICK_S
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        pauses = {pause_s: until_tick(pause_s) for pause_s in (TICK_S, 1.0, 5.0)}
    for pause_s, chosen_s in pauses.items():
        due = (now + chosen_s) / TICK_S
        assert due == pytest.approx(round(due))
        assert chosen_s == pytest.approx(pause_s, abs=TICK_S / 2)


async def test_what_is_due_after_a_pause_waits_for_no_later_tick(monkeypatch):
    loop = asyncio.get_running_loop()
    begin = round(loop.time() / TICK_S) * TICK_S
    ends = []
    for part in range(20):
        now = begin + TICK_S * part / 20
        monkeypatch.setattr(loop, "time", lambda now=now: now)
        ends.append(now + until_tick(TICK_S, lifecycle.LATE_S))
        assert 0 < ends[-1] - now < TICK_S + lifecycle.LATE_S + 1e-6
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
    assert set(pauses) == {(3.0, lifecycle.LATE_S)}


async def test_a_pause_below_a_tick_is_kept():
    assert until_tick(0.02) == 0.02


def test_what_comes_while_the_last_action_runs_is_acted_on_before_the_stop():
    entered, go = threading.Event(), threading.Event()
    work: list[int] = [1]
    done: list[list[int]] = []

    def act() -> None:
        taken = list(work)
        entered.set()
        assert go.wait(60)
        done.append(taken)

    thread = ServiceThread("Slow", 60, act)
    thread.start()
    thread.wakeup()
    assert entered.wait(60)
    work.append(2)
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    while not thread.is_stopping:
        pass
    go.set()
    stopping.join(60)

    assert not stopping.is_alive()
    assert done[-1] == [1, 2]


def test_an_error_is_logged_and_the_thread_continues(caplog):
    calls = threading.Semaphore(0)

    def fail() -> None:
        calls.release()
        raise ValueError("no luck")

    thread = ServiceThread("Unlucky", 60, fail)
    thread.start()
    thread.wakeup()
    assert calls.acquire(timeout=60)
    thread.wakeup()
    assert calls.acquire(timeout=60)
    thread.stop()

    assert "Unlucky failed; it continues" in caplog.text
    assert "no luck" in caplog.text


def test_a_thread_that_never_began_may_be_stopped():
    ServiceThread("Never", 60, lambda: None).stop()


def test_an_idle_thread_sleeps_on_until_it_is_woken(monkeypatch):
    monkeypatch.setattr(lifecycle, "IDLE_S", 60)
    calls: list[None] = []
    acted = threading.Semaphore(0)

    def act() -> bool:
        calls.append(None)
        acted.release()
        return len(calls) >= 3

    thread = ServiceThread("Seldom", 0.001, act)
    thread.start()
    for _ in range(3):
        assert acted.acquire(timeout=60)
    while not thread.is_idle:
        pass
    assert not acted.acquire(timeout=0.05)
    thread.wake_idle()
    assert acted.acquire(timeout=60)
    thread.stop()


def test_a_busy_thread_is_left_to_its_interval():
    acted = threading.Semaphore(0)
    thread = ServiceThread("Busy", 60, acted.release)
    thread.start()
    thread.wake_idle()

    assert not acted.acquire(timeout=0.05)
    thread.stop()
    assert acted.acquire(blocking=False)
    assert not acted.acquire(blocking=False), "the last action was the only one"


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
