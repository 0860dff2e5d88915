import asyncio

from rocketbroker.common.lifecycle import TaskOwner


async def test_whenever_waits_as_long_as_it_is_told_and_goes_on_after_an_error(caplog):
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
    async with asyncio.timeout(5):
        await called.wait()
    await tasks.stop()
    assert "Test.act failed; next try in 0.0 s" in caplog.text
