import asyncio

import pytest

from rocketbroker.app.mqadmin.many import of_many


async def test_answers_come_in_the_order_of_the_items_with_at_most_32_under_way():
    under_way, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(100 - number):
            await asyncio.sleep(0)
        under_way -= 1
        return number * 2

    assert await of_many(range(100), ask) == [number * 2 for number in range(100)]
    assert most == 32


async def test_the_first_failure_is_raised():
    async def ask(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        await of_many([1, 0, 2], ask)
