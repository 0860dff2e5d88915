import asyncio

from rocketbroker.common import lifecycle
from rocketbroker.common.lifecycle import TaskOwner


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
