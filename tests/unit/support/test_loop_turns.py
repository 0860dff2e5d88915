"""Lines of a turn: those of the work, and of nothing else."""

import asyncio
import gc

from tests.support.loop_turns import longest_turn


class Garbage:
    """A cycle whose end takes a thousand lines."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(1_000):
            pass


async def test_the_longest_of_the_turns_counts():
    async def work() -> None:
        for lines in (5, 50, 10):
            for _ in range(lines):
                pass
            await asyncio.sleep(0)

    assert 100 <= await longest_turn(work()) < 120


async def test_garbage_of_others_is_not_counted():
    async def work() -> None:
        assert len(list(zip(range(10_000), strict=True))) == 10_000  # enough for a collection

    before = gc.get_threshold()
    gc.set_threshold(700)
    try:
        Garbage()
        assert await longest_turn(work()) < 10
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
