"""Times of rebalances."""

import asyncio

import pytest

from rocketbroker.client.rebalance.rebalance_service import RebalanceService
from tests.support.waiting import until


class Rebalances:
    def __init__(self, *results: bool | Exception) -> None:
        self.results = list(results)
        self.number = 0

    async def __call__(self) -> bool:
        self.number += 1
        await asyncio.sleep(0)
        result = self.results.pop(0) if self.results else True
        if isinstance(result, Exception):
            raise result
        return result


async def test_it_rebalances_regularly():
    rebalances = Rebalances()
    service = RebalanceService(rebalances, 0.01)
    await service.start()
    await until(lambda: rebalances.number >= 3)
    await service.stop()


async def test_it_rebalances_when_woken():
    rebalances = Rebalances()
    service = RebalanceService(rebalances, 300.0)
    await service.start()
    service.wakeup()
    await until(lambda: rebalances.number == 1)
    await service.stop()


async def test_an_incomplete_or_failed_one_is_repeated_soon(caplog: pytest.LogCaptureFixture):
    rebalances = Rebalances(False, False, ValueError("broken"), False)
    service = RebalanceService(rebalances, 300.0)
    await service.start()
    await service.now()
    assert rebalances.number == 1
    await until(lambda: rebalances.number == 5)
    await service.stop()
    assert "broken" in caplog.text
