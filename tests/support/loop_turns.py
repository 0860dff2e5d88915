"""Turns of the event loop, in CPU time of its thread: what others on a busy machine do is not counted."""

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any


async def longest_turn_s(work: Coroutine[Any, Any, Any]) -> float:
    """Run a coroutine; return the longest CPU time for which the loop served nothing else.

    The garbage of the test process is not collected meanwhile: a server exempts its objects (``spare_the_collector``).
    """
    gc.disable()
    try:
        longest, last = 0.0, time.thread_time()
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        await task
    finally:
        gc.enable()
    return longest
