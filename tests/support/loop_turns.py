"""Turns of a coroutine: what it does between two awaits, counted in lines, which no busy machine changes."""

import gc
import sys
from collections.abc import Coroutine, Generator
from types import FrameType
from typing import Any


async def longest_turn(work: Coroutine[Any, Any, object]) -> int:
    """Run a coroutine; return the most lines of Python that it ran without letting the loop serve others.

    Each pass of a loop or a comprehension is a line, and so is each value of a generator. A call of a function in C is
    none, however long it takes.
    """
    return max(await _Traced(work))


class _Traced:
    """Awaits a coroutine, and returns the lines of each turn."""

    def __init__(self, work: Coroutine[Any, Any, object]) -> None:
        self._work = work
        self._lines = 0

    def __await__(self) -> Generator[Any, None, list[int]]:
        turns: list[int] = []
        steps = self._work.__await__()
        while True:
            self._lines, before = 0, sys.gettrace()
            # A collection runs finalizers and callbacks of weak references, in Python: of whatever earlier tests left.
            collects = gc.isenabled()
            gc.disable()
            sys.settrace(self._count)
            try:
                awaited = steps.send(None)
            except StopIteration:
                return [*turns, self._lines]
            finally:
                sys.settrace(before)
                if collects:
                    gc.enable()
            turns.append(self._lines)
            yield awaited

    def _count(self, _frame: FrameType, event: str, _value: object) -> Any:
        self._lines += event == "line"
        return self._count
