"""Delayed messages of both loads are delivered, and none early."""

from pathlib import Path

import pytest

from bench.delayed import measure


@pytest.mark.soak
async def test_both_loads_are_delivered(tmp_path: Path):
    for timer in (False, True):
        at_once, late = await measure(tmp_path / str(timer), 100, 200, 1, 10, timer=timer)
        assert at_once["rate"] > 0
        assert len(late) == 200
        assert late[0] >= 0, "early"
