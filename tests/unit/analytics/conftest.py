import asyncio

import pytest

from tests.support.sent_messages import StepClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """Passes as fast as the code under test sleeps."""
    clock, really = StepClock(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await really(0)

    monkeypatch.setattr("rocketbroker.analytics.spark.send_lanes.asyncio.sleep", sleep)
    return clock
