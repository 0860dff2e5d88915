import asyncio

import pytest

from rocketbroker.processor.support import loop_share
from rocketbroker.processor.support.loop_share import LoopShare


@pytest.mark.parametrize(("held_s", "turns"), [(0.0, 10), (60.0, 0)])
async def test_others_run_once_the_loop_was_held_for_long_enough(monkeypatch, held_s, turns):
    monkeypatch.setattr(loop_share, "HELD_S", held_s)
    runs: list[None] = []

    async def other():
        while True:
            runs.append(None)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    share = LoopShare()
    for _ in range(10):
        await share.turn()
    assert len(runs) == turns
    task.cancel()
